"""Short runs of objectives that need more than samples and scores: GiGPO, ECHO, RAE."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from whet_process import run_folder, start, write_rows

from whet.config.examples import examples_folder
from whet.tracking import read_metrics

CUT = (
    "trainer.device=cpu",
    "data.rollout_batch_size=4",
    "worker.actor.global_batch_size=4",
    "worker.rollout.n=4",
    "trainer.max_steps=2",
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
    "trainer.save_freq=-1",
)


@pytest.mark.slow
def test_turns_are_compared_and_observations_learned(tmp_path: Path) -> None:
    more = ("algorithm.adv_estimator=gigpo", "algorithm.gigpo_anchor=history", "algorithm.observation_coef=0.5")
    process = start(tmp_path, "train", f"config={examples_folder()}/agents/game/config.yaml", *CUT, *more)
    assert process.wait() == 0, process.text()
    lines = read_metrics(run_folder(tmp_path, "guess") / "metrics.jsonl")
    assert len(lines) == 2
    for line in lines:
        assert math.isfinite(line["actor/grad_norm"])
        assert line["actor/observation_loss"] > 0


@pytest.mark.slow
def test_roles_have_baselines_of_their_own(tmp_path: Path, quickstart: Path) -> None:
    rows = [
        {"problem": f"Sort these digits: {i} 1", "answer": f"1 {i}", "role": "first" if i % 2 else "second"}
        for i in (2, 3, 4, 5, 6, 7, 8, 9)
    ]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    files = (f"data.train_files={data}", "data.val_files=''")
    more = ("algorithm.adv_estimator=rae", "algorithm.rae_decay=0.5")
    process = start(tmp_path, "train", *CUT, *files, *more, "trainer.experiment_name=roles")
    assert process.wait() == 0, process.text()
    lines = read_metrics(run_folder(tmp_path, "roles") / "metrics.jsonl")
    assert {"rae/first", "rae/second"} <= set(lines[-1])
    assert all(math.isfinite(line["actor/grad_norm"]) for line in lines)
    process = start(tmp_path, "train", *CUT, *more, "trainer.experiment_name=without")
    assert process.wait() == 2
    assert "has no column role" in process.text()
