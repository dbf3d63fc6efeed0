"""Two steps of training with environments of other packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from whet_process import run_folder, train

from whet.tracking import read_metrics

COMMON = (
    "worker.reward.reward_function=null",
    "data.prompt_key=prompt",
    "data.answer_key=answer",
    "data.format_prompt=null",
    "data.max_prompt_length=300",
    "trainer.max_steps=2",
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
)


def test_a_task_of_reasoning_gym(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym", reason="needs whet[reasoning_gym]")
    rows = ("data.train_files=reasoning_gym:chain_sum?max_terms=2@20", "data.val_files=reasoning_gym:chain_sum@21-24")
    code, text = train(tmp_path, *COMMON, *rows, "worker.rollout.env=reasoning_gym")
    assert code == 0, text
    last = read_metrics(run_folder(tmp_path) / "metrics.jsonl")[-1]
    assert last["env/end_answered"] == 1
    assert last["env/failed"] == 0


def test_a_game_of_gymnasium(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="needs whet[gymnasium]")
    rows = ("data.train_files=gymnasium:FrozenLake-v1@20", "data.val_files=gymnasium:FrozenLake-v1@21-24")
    limits = ("data.max_response_length=200", "worker.rollout.max_turn_tokens=8", "worker.rollout.max_turns=3")
    code, text = train(tmp_path, *COMMON, *rows, *limits, "worker.rollout.env=gymnasium:FrozenLake-v1")
    assert code == 0, text
    last = read_metrics(run_folder(tmp_path) / "metrics.jsonl")[-1]
    assert last["env/failed"] == 0
    assert last["turns/mean"] > 1
