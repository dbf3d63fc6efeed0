"""Agents of other frameworks train: two steps on a tiny model with the programs of examples/agents/harness.

They run under the interpreter that WHET_HARNESS_PYTHON names, or this one; what it has not installed is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import MakeTiny
from whet_process import SMALL, run_folder, settled, start

from whet.config.examples import examples_folder

PYTHON = os.environ.get("WHET_HARNESS_PYTHON", sys.executable)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "agent"),
    [
        ("openai", "openai_agent.py"),
        ("anthropic", "anthropic_agent.py"),
        ("langchain_openai, langgraph", "langgraph_agent.py"),
        ("agents", "agents_sdk_agent.py"),
        ("smolagents", "smolagents_agent.py"),
    ],
    ids=["openai", "anthropic", "LangGraph", "OpenAI Agents SDK", "smolagents"],
)
def test_two_steps(tiny: MakeTiny, tmp_path: Path, package: str, agent: str) -> None:
    if subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True).returncode:
        pytest.skip(f"{package} is not installed")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"problem": f"Add {i} and 3.", "answer": str(i + 3)}) + "\n" for i in range(4)))
    model = tiny("llama", 0, max_position_embeddings=32768, eos_token_id=1).path
    process = start(
        tmp_path,
        "train",
        *SMALL,
        f"worker.actor.model.model_path={model}",
        f"data.train_files={rows}",
        f"data.val_files={rows}",
        "data.rollout_batch_size=2",
        "worker.actor.global_batch_size=2",
        "worker.rollout.n=2",
        "data.max_prompt_length=16000",
        "data.max_response_length=16000",
        "worker.rollout.max_turn_tokens=12",
        "worker.rollout.max_turns=2",
        "worker.rollout.agent_timeout=120",
        "worker.reward.reward_function=null",
        f"worker.rollout.agent_command={PYTHON} {examples_folder() / 'agents/harness' / agent}",
        "trainer.max_steps=2",
        "trainer.val_before_train=false",
        "trainer.val_freq=-1",
        "trainer.save_freq=-1",
    )
    assert process.wait(600) == 0, process.text()
    text = process.text()
    first, second = settled(run_folder(tmp_path) / "metrics.jsonl")
    for step in (first, second):
        assert step["env/failed"] == 0, text
        assert step["turns/mean"] >= 1
        assert "actor/grad_norm" in step
