"""A whole run with tools through the native engine: a function and an MCP server, called in every turn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import whet
from whet.chat.calls.format import Format
from whet.chat.calls.registry import FORMATS
from whet.chat.messages import Parsed, ToolCall, call_id

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs whet[mcp]")
SERVER = Path(__file__).parents[1] / "tooling" / "mcp_server.py"
TOOL = '''
def count(text: str) -> tuple[str, float]:
    """Count characters."""
    return str(len(text)), 0.25
'''


def _parse(text: str) -> Parsed:
    """Read every turn as three calls: the quickstart's model has learned no format."""
    calls = (("count", {"text": text}), ("process", {}), ("count", {"word": text}))
    return Parsed("", None, [ToolCall(name, given, call_id(text, i)) for i, (name, given) in enumerate(calls)])


@pytest.fixture
def form() -> Iterator[str]:
    """Name of a format in which this model's turns are calls."""
    FORMATS.register("every_turn", Format(_parse, (), ("",)))
    yield "every_turn"
    FORMATS._registered.pop("every_turn")


def nothing(reward_input: dict[str, Any]) -> dict[str, float]:
    """Score every episode 0, so that the tools' rewards are all there is."""
    return {"overall": 0.0}


def test_a_run_with_tools(tmp_path: Path, quickstart: Path, form: str) -> None:
    (tmp_path / "mine.py").write_text(TOOL)
    rows = [{"prompt": f"Sort these digits: {i} 4 1", "answer": ""} for i in range(4)]
    run = whet.train(
        str(quickstart / "model"),
        rows,
        nothing,
        output=tmp_path / "run",
        steps=2,
        n=2,
        batch_size=4,
        max_prompt_length=64,
        max_response_length=96,
        quiet=True,
        val_freq=-1,
        **{
            "worker.rollout.tools": [f"mcp:{sys.executable} {SERVER}", f"{tmp_path / 'mine.py'}:count"],
            "worker.rollout.tool_format": form,
            "worker.rollout.max_turns": 2,
            "worker.rollout.max_turn_tokens": 8,
            "trainer.val_before_train": False,
        },
    )
    assert run.metrics["reward/overall"] == [0.5, 0.5]  # of the calls that worked, one in each of two turns
    assert run.metrics["env/tool_calls"] == [6, 6]
    assert run.metrics["env/tool_errors"] == [2, 2]
    (first, *_) = sorted((tmp_path / "run").rglob("samples/train_*.parquet"))
    responses = [row["response"] for row in pq.read_table(first).to_pylist()]
    assert all("missing argument text" in response for response in responses)
