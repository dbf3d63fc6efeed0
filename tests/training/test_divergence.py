"""Runs whose numbers are not finite stop with exit code 1 and keep the last good checkpoint."""

from __future__ import annotations

import json
import math
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from whet_process import run_folder, start, train

from whet.tracking.lines import line, step_fields
from whet.training.fit import DivergenceWatch

QUIET = ("trainer.val_before_train=false", "trainer.val_freq=-1", "trainer.save_freq=1", "trainer.save_limit=1")


# Decay multiplies every weight by -1e33 a step, which single precision holds once and not twice.
DIVERGING = ("worker.actor.optim.lr=1000", "worker.actor.optim.weight_decay=1e30", "trainer.save_freq=9")


def checkpoints(run):
    return sorted(path.name for path in run.glob("global_step_*"))


def test_weights_that_are_not_finite_are_never_saved(tmp_path, few_rows):
    assert train(tmp_path, *few_rows, *QUIET, "trainer.max_steps=2")[0] == 0
    code, text = train(tmp_path, *few_rows, *QUIET, "trainer.max_steps=9", *DIVERGING)
    assert code == 1
    assert "Traceback" not in text
    assert "finished" not in text
    assert re.search(r"step \d: the update left \d+ weight tensors of the actor", text)
    assert "The last checkpoint is" in text
    run = run_folder(tmp_path)
    assert checkpoints(run) == ["global_step_2"]
    weights = load_file(run / "global_step_2" / "actor" / "huggingface" / "model.safetensors")
    assert all(torch.isfinite(each).all() for each in weights.values())
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1], parse_constant=pytest.fail)["actor/weights_not_finite"] > 0


def test_supervised_learning_stops_as_well(tmp_path):
    process = start(
        tmp_path, "sft", "trainer.device=cpu", "trainer.max_steps=9", "trainer.val_before_train=false",
        "trainer.val_freq=-1", "trainer.save_freq=-1", *DIVERGING,
    )  # fmt: skip
    assert process.wait() == 1
    assert re.search("weight tensors of the actor|every update of the actor was skipped", process.text())
    assert not list(tmp_path.glob("checkpoints/**/global_step_*"))


def test_model_that_is_not_finite_is_refused(tmp_path, few_rows):
    assert train(tmp_path, *few_rows, *QUIET, "trainer.max_steps=1")[0] == 0
    model = run_folder(tmp_path) / "global_step_1" / "actor" / "huggingface"
    weights = load_file(model / "model.safetensors")
    name = sorted(weights)[0]
    weights[name].view(-1)[0] = math.nan
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    more = (f"worker.actor.model.model_path={model}", "trainer.experiment_name=broken")
    code, text = train(tmp_path, *few_rows, *QUIET, *more)
    assert code == 2
    assert f"({name} is one)" in text


def test_console_shows_what_is_not_finite():
    shown = line(step_fields(1, 2, {"actor/kl_loss": math.nan, "actor/grad_norm": math.inf, "actor/loss": -1e-9}), None)
    assert re.search(r"kl +nan", shown.plain)
    assert re.search(r"grad +inf", shown.plain)
    assert "loss  0.0000" in shown.plain


def step(**metrics):
    return {f"actor/{name}": value for name, value in metrics.items()}


def test_steps_that_change_nothing_end_a_run():
    watch = DivergenceWatch()
    assert watch.observe(step(grad_skipped=0.0, grad_norm=1.0)) is None
    assert watch.observe(step(grad_skipped=2.0, pg_loss=math.nan)) is None
    assert "skipped" in watch.reason_not_to_save()
    assert watch.observe(step(grad_skipped=1.0, grad_norm=1.0)) is None, "one of two updates counted"
    assert watch.skipped == 0
    assert watch.reason_not_to_save() is None
    for _ in range(2):
        assert watch.observe(step(grad_skipped=1.0)) is None
    assert watch.reason_not_to_save() is None, "outputs are finite and earlier updates counted"
    assert "3 steps in a row" in watch.observe(step(grad_skipped=1.0))


def test_critic_is_watched_too():
    watch = DivergenceWatch()
    metrics = step(grad_skipped=0.0, grad_norm=1.0) | {"critic/grad_skipped": 1.0}
    assert [watch.observe(metrics) is None for _ in range(3)] == [True, True, False]
    assert "critic" in DivergenceWatch().observe({"critic/weights_not_finite": 2.0})
