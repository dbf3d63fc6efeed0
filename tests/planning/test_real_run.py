"""The plan of a short run on this CPU beside the run itself."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from whet.cli import main
from whet.config import load_config
from whet.config.examples import examples_folder
from whet.planning.lengths import read_lengths
from whet.planning.machines import find_machine
from whet.planning.planned import Question, make_plan
from whet.tracking import read_metrics


def test_quickstart_takes_about_what_was_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [
        f"config={examples_folder() / 'quickstart.yaml'}",
        "trainer.device=cpu",
        "trainer.max_steps=5",
        "trainer.val_before_train=false",
        "trainer.val_freq=-1",
        f"trainer.save_checkpoint_path={tmp_path / 'run'}",
    ]
    assert main(["train", *keys]) == 0
    capsys.readouterr()
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    lengths = read_lengths(tmp_path / "run")
    assert len(lengths) == 5 * 32 * 8
    prompt = statistics.mean(line["prompt_length/mean"] for line in lines)
    plan = make_plan(Question(load_config(keys), find_machine("cpu"), prompt, statistics.mean(lengths)))
    step = min(line["timing_s/step"] for line in lines[1:])
    # Other programs slow the run and the probe, at different moments.
    assert step / 5 < plan.times.step < step * 5
    # The process of the tests holds more than that of a run: its peak is an upper bound.
    assert plan.memory.peak < 1.1e9 * lines[-1]["perf/max_rss_gb"]
    assert plan.memory.peak - plan.subject.machine.fit.context_bytes < 0.3e9
