"""`whet generate` and `whet eval` on a real vLLM: greedy, they write what the native engine writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from evals.conftest import read_lines
from whet_process import start, write_rows

from whet.cli import examples_folder

CONFIG = f"config={examples_folder() / 'quickstart.yaml'}"
GREEDY = ("trainer.device=cpu", "worker.rollout.max_num_seqs=8", "worker.rollout.temperature=0", "worker.rollout.n=1")
Run = Callable[..., str]


@pytest.fixture
def vllm(vllm_python: str, wide_quickstart: Path) -> tuple[str, ...]:
    """The arguments that put vLLM in the native engine's place, on the same model."""
    return (
        f"worker.actor.model.model_path={wide_quickstart}",
        "worker.rollout.name=vllm",
        f"worker.rollout.python={vllm_python}",
        "worker.rollout.enforce_eager=true",
    )


@pytest.fixture
def few(quickstart: Path, here: Path) -> list[dict[str, Any]]:
    rows = read_lines(quickstart / "test.jsonl")[:40]
    write_rows(here / "few.jsonl", rows)
    return rows


def test_generated_samples_are_the_native_engines(whet: Run, vllm: tuple[str, ...], few: list[dict[str, Any]]) -> None:
    common = ("generate", CONFIG, *GREEDY, "generate.files=few.jsonl", "generate.token_ids=true")
    whet(*common, "generate.output=native.jsonl")
    whet(*common, *vllm, "generate.output=vllm.jsonl")
    ours, theirs = read_lines("vllm.jsonl"), read_lines("native.jsonl")
    assert len(ours) == len(few)
    for one, two in zip(ours, theirs, strict=True):
        assert one.pop("token_log_probs") == pytest.approx(two.pop("token_log_probs"), abs=1e-3)
        assert one == two
    assert list(Path().glob("*.part*")) == []


def test_a_killed_job_goes_on_where_it_was(
    whet: Run, here: Path, vllm: tuple[str, ...], few: list[dict[str, Any]]
) -> None:
    sampling = ("trainer.device=cpu", "worker.rollout.max_num_seqs=4", "worker.rollout.n=2")
    long = ("worker.rollout.ignore_eos=true", "data.max_response_length=200")
    command = ("generate", CONFIG, *sampling, *long, *vllm, "generate.files=few.jsonl", "generate.output=out.jsonl")
    process, part = start(here, *command), here / "out.jsonl.part"
    assert process.wait_for(lambda: part.exists() and part.read_bytes().count(b"\n") > 3), process.text()
    family = psutil.Process(process.process.pid).children(recursive=True)
    assert any("whet_vllm_child.py" in " ".join(each.cmdline()) for each in family)
    process.kill()
    assert psutil.wait_procs(family, timeout=15)[1] == []
    kept = [json.loads(line) for line in part.read_bytes().split(b"\n")[1:-1]]
    assert 0 < len(kept) < len(few)
    assert f"{len(kept)} of {len(few)} prompts are done already" in whet(*command)
    found = read_lines("out.jsonl")
    assert [(row["uid"], row["index"]) for row in found] == [
        (f"few.jsonl:{row}", index) for row in range(1, len(few) + 1) for index in range(2)
    ]
    assert all(row["response_length"] == 200 for row in found)


def test_scores_are_the_native_engines(whet: Run, vllm: tuple[str, ...], few: list[dict[str, Any]]) -> None:
    override = "worker.rollout.val_override_config={temperature: 0, n: 1}"
    common = ("eval", CONFIG, "trainer.device=cpu", override, "data.val_files=few.jsonl")
    whet(*common, "eval.output=native")
    whet(*common, *vllm, "eval.output=vllm")
    ours, theirs = (json.loads(Path(name, "report.json").read_text())["datasets"] for name in ("vllm", "native"))
    assert ours == theirs
    assert 0 < ours["val"]["metrics"]["avg@1"]["mean"] < 1
    found = [read_lines(Path(name, "val", "answers.jsonl"))[1:] for name in ("vllm", "native")]
    answers = [{line["key"]: line["record"] for line in lines} for lines in found]  # they end in any order
    assert len(answers[0]) == len(few)
    assert answers[0] == answers[1]
