"""`compare`: what differs between runs, and intervals of their results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from whet.evals.compare import compare
from whet.plots.curves import RunData
from whet.plots.runs import read_run


def write_run(folder: Path, correct: np.ndarray, lr: float) -> RunData:
    """Write a run with one validation: `correct` holds a score for each prompt."""
    (folder / "samples").mkdir(parents=True)
    row = {"step": 3, "val/accuracy": float(correct.mean()), "timing_s/step": 0.5}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "config.yaml").write_text(f"worker:\n  actor:\n    optim:\n      lr: {lr}\n")
    prompts = [f"prompt {i}" for i in range(len(correct))]
    table = pa.table({"uid": prompts, "prompt": prompts, "score/accuracy": correct, "reward": correct})
    pq.write_table(table, folder / "samples" / "val_000003.parquet")
    return read_run(folder)


def test_differences_and_paired_intervals(tmp_path: Path) -> None:
    first = np.repeat([1.0, 0.0], [50, 50])
    second = np.repeat([1.0, 0.0], [70, 30])  # right wherever the first is, and on 20 prompts more
    text = "\n".join(compare([write_run(tmp_path / "a", first, 0.1), write_run(tmp_path / "b", second, 0.2)]))
    assert "config (1 difference)" in text
    assert "worker.actor.optim.lr" in text
    (line,) = [line for line in text.splitlines() if line.startswith("val/accuracy, last: b minus a")]
    assert "= +20.0 points" in line
    low, high = (float(part) for part in line.split("(")[1].split(",")[0].split(" to "))
    # The paired difference has a standard error of sqrt(0.2 * 0.8 / 100) = 4 points, the unpaired one of 6.8.
    assert 10 < low < 15
    assert 25 < high < 30


def test_runs_that_share_nothing(tmp_path: Path) -> None:
    a = write_run(tmp_path / "x" / "run", np.ones(3), 0.1)
    (tmp_path / "y" / "run").mkdir(parents=True)
    (tmp_path / "y" / "run" / "metrics.jsonl").write_text('{"step": 1, "val/loss": 0.5}\n')
    lines = compare([a, read_run(tmp_path / "y" / "run")])
    assert "x/run" in lines[0]
    assert "y/run" in lines[0]
    assert any(line.startswith("  val/loss, last") for line in lines)
    assert not any("minus" in line for line in lines)
