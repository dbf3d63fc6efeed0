"""A trained model is evaluated from its checkpoint, and scores what its run's last validation said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from evals.conftest import read_lines
from whet_process import SMALL, write_rows

from whet.cli import examples_folder
from whet.tracking import read_metrics

RUN = "checkpoints/whet/quickstart"


@pytest.mark.parametrize("rank", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_a_checkpoint_scores_as_its_run_said(whet: Callable[..., str], here: Path, quickstart: Path, rank: int) -> None:
    few = write_rows(here / "few.jsonl", read_lines(quickstart / "test.jsonl")[:16])
    same = (f"config={examples_folder() / 'quickstart.yaml'}", *SMALL, f"data.val_files={few}", "trainer.max_steps=2")
    whet("train", *same, "worker.actor.optim.lr=0.01", f"worker.actor.model.lora.rank={rank}", "trainer.val_freq=2")
    said = read_metrics(here / RUN / "metrics.jsonl")[-1]
    ways = [f"trainer.load_checkpoint_path={RUN}/global_step_2"]
    if rank == 0:
        ways.append(f"worker.actor.model.model_path={RUN}/global_step_2/actor/huggingface")
    for number, way in enumerate(ways):
        whet("eval", *same, way, f"eval.output=out{number}")
        found = json.loads(Path(f"out{number}/report.json").read_text())["datasets"]["val"]["metrics"]
        assert found["reward"]["mean"] == pytest.approx(said["val/reward"])
        assert found["length"]["mean"] == pytest.approx(said["val/response_length_mean"])


def test_new_weights_under_an_old_name_are_not_taken_for_the_old_ones(
    whet: Callable[..., str], refused: Callable[..., str], here: Path, quickstart: Path
) -> None:
    few = write_rows(here / "few.jsonl", read_lines(quickstart / "test.jsonl")[:4])
    model = shutil.copytree(quickstart / "model", here / "model")
    same = ("eval", f"config={examples_folder() / 'quickstart.yaml'}", f"worker.actor.model.model_path={model}")
    whet(*same, f"data.val_files={few}", "eval.output=out")
    (model / "model.safetensors").touch()
    assert "holds work that was done with weights=" in refused(*same, f"data.val_files={few}", "eval.output=out")
