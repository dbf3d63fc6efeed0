"""A run on several devices is the run on one: the same metrics, and checkpoints that either goes on from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from whet.cli import main

STEPS = ("trainer.val_freq=2", "trainer.val_generations_to_log=0", "trainer.device=cpu", "trainer.quiet=true")


def _run(folder: Path, devices: int, steps: int, *arguments: str) -> list[dict[str, float]]:
    keys = [f"trainer.n_gpus_per_node={devices}", f"trainer.max_steps={steps}"]
    assert main(["train", *keys, *STEPS, f"trainer.save_checkpoint_path={folder}", *arguments]) == 0
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _assert_alike(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.keys() == b.keys()
        for name, value in a.items():
            if not name.startswith(("timing_s/", "perf/")):
                assert b[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["worker.rollout.name=hf"], "native engine only"),
        (["worker.rollout.exact=true"], "worker.rollout.exact=true is for one device"),
        (["algorithm.adv_estimator=gae", "worker.critic.global_batch_size=32"], "needs a critic"),
    ],
)
def test_what_several_devices_cannot_do_is_said_first(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["trainer.n_gpus_per_node=2", "trainer.device=cpu", f"trainer.save_checkpoint_path={tmp_path / 'run'}"]
    assert main(["train", *keys, *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "trainer.n_gpus_per_node=2" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [(), ("algorithm.disable_kl=false", "algorithm.use_kl_loss=true", "algorithm.kl_coef=0.01")],
    ids=["", "kl"],
)
def test_two_ranks_train_as_one_process_does(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    pytest.importorskip("ray")
    alone = _run(tmp_path / "alone", 1, 4, *arguments)
    _assert_alike(_run(tmp_path / "two", 2, 4, *arguments), alone)
    # and each goes on where the other stopped
    _assert_alike(_run(tmp_path / "two", 1, 6, *arguments), _run(tmp_path / "alone", 2, 6, *arguments))
    assert not _ray_processes()


@pytest.mark.slow
def test_a_rank_that_dies_is_named_and_the_run_can_go_on(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    keys = ["trainer.n_gpus_per_node=2", "trainer.max_steps=500", "trainer.save_freq=2", *STEPS, "trainer.val_freq=-1"]
    command = [sys.executable, "-m", "whet.cli", "train", *keys, f"trainer.save_checkpoint_path={tmp_path / 'run'}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    saved = tmp_path / "run" / "global_step_2"
    deadline = time.monotonic() + 120
    while not saved.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    ranks = [p for p in psutil.Process(process.pid).children(recursive=True) if "ray::" in " ".join(p.cmdline()[:1])]
    victim = next(p for p in ranks if "Host" in p.cmdline()[0])
    os.kill(victim.pid, signal.SIGKILL)
    _, error = process.communicate(timeout=90)
    assert process.returncode == 1, error
    assert "rank" in error
    assert "this goes on from it: whet train" in error
    assert saved.exists()
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in ranks)


def _ray_processes() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if "ray" in p.name()]
