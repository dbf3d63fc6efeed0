"""Sweeps that train: skipped, resumed, failed runs, and the table at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whet.cli.dispatch import main
from whet.plots.runs import as_arms, find_runs
from whet.sweeps.runs import ended_well
from whet.sweeps.table import table

SMALL = (
    "trainer.device=cpu",
    "data.rollout_batch_size=4",
    "worker.rollout.n=2",
    "worker.actor.global_batch_size=4",
    "trainer.max_steps=1",
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
    "trainer.experiment_name=grid",
)


def sweep(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "whet", "sweep", *SMALL, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_finished_runs_are_skipped_failed_ones_named_and_plot_understands_the_folder(
    quickstart: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints" / "whet" / "grid"
    blocked = folder / "seed=1"
    folder.mkdir(parents=True)
    blocked.write_text("in the way of the run's folder")
    code, text = sweep(tmp_path, "seed=0..1")
    assert code == 1, text
    assert "1 of 2 runs failed: seed=1" in text
    assert f"curves: whet plot {folder}" in text
    blocked.unlink()
    code, text = sweep(tmp_path, "seed=0..1")
    assert code == 0, text
    assert "run 1 of 2: seed=0: finished before" in text
    assert "run 2 of 2: seed=1\n" in text
    (arm,) = as_arms(find_runs(folder))
    assert [run.settings["data.seed"] for run in arm.runs] == [0, 1]
    assert [run.settings["worker.rollout.seed"] for run in arm.runs] == [0, 1]
    assert arm.name.endswith("(n=2)")
    assert main(["plot", str(folder), "--out", str(tmp_path / "all.svg")]) == 0


STAND_IN = """#!/bin/sh
for argument; do case $argument in trainer.save_checkpoint_path=*) folder=${argument#*=};; esac; done
mkdir -p "$folder"
case $folder in
  *seed=0) exit 1;;
  *seed=1) echo "stopped after 1 of 2 steps in 1s" > "$folder/run.log";;
  *) echo "finished after 2 of 2 steps in 1s" > "$folder/run.log";;
esac
"""


def test_a_failed_run_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    program = tmp_path / "whet"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert main(["sweep", *SMALL, f"trainer.save_checkpoint_path={tmp_path / 'grid'}", "seed=0..2"]) == 1
    text = capsys.readouterr().out
    assert "2 of 3 runs failed: seed=0, seed=1;" in text  # what a signal stopped has not finished
    assert (tmp_path / "grid" / "seed=2" / "run.log").exists()


def test_mistakes_of_any_run_are_said_before_the_first_starts(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["sweep", *SMALL, f"trainer.save_checkpoint_path={tmp_path}", "lr=1e-3,fast"]) == 2
    assert "expected" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_dry_run_lists_the_runs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = [*SMALL, f"trainer.save_checkpoint_path={tmp_path}", "lr=1e-3,1e-4", "seed=0..2", "--dry-run"]
    assert main(["sweep", *arguments]) == 0
    text = capsys.readouterr().out
    assert f"6 runs in {tmp_path}" in text
    assert "lr=1e-4,seed=2" in text
    assert main(["sweep", *arguments, "--fast"]) == 2


def test_the_folder_of_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}")
    assert main(["sweep", *SMALL, f"trainer.save_checkpoint_path={tmp_path}", "seed=0..1"]) == 2
    assert "holds a run" in capsys.readouterr().err


def test_a_run_has_ended_well_by_its_last_closing_lines(tmp_path: Path) -> None:
    assert not ended_well(tmp_path)
    log = tmp_path / "run.log"
    log.write_text("stopped after 2 of 4 steps in 1s\n  run folder x\n")
    assert not ended_well(tmp_path)
    log.write_text(log.read_text() + "finished after 4 of 4 steps in 1s\n  run folder x\n")
    assert ended_well(tmp_path)


def test_the_table_has_a_row_for_each_run_and_the_mean_over_seeds(tmp_path: Path) -> None:
    for seed, value in ((0, 0.25), (1, 0.75)):
        run = tmp_path / f"seed={seed}"
        run.mkdir()
        (run / "metrics.jsonl").write_text(f'{{"step": 3, "reward/overall": {value}}}\n')
        (run / "config.yaml").write_text(f"trainer:\n  seed: {seed}\n")
    lines = table(tmp_path, {"seed=0": 0, "seed=1": 1}, ["seed=0", "seed=1", "seed=2"])
    assert lines[0].split() == ["run", "steps", "reward/overall"]
    assert lines[1].split() == ["seed=0", "3", "0.25"]
    assert "0.75" in lines[2]
    assert "failed (exit code 1)" in lines[2]
    assert "not started" in lines[3]
    assert "0.5 (0.25 to 0.75)" in lines[4]
