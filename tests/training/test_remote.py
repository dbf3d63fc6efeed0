"""A run on several devices is the run on one: the same metrics, and checkpoints that either goes on from."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from remote_runs import QUICKSTART, STEPS, assert_alike, killed_rank, ray_processes, run

from whet.cli import main

# The reference is sharded in its own way: here from host memory, layer by layer.
REFERENCE = ("worker.ref.fsdp.enable_cpu_offload=true", "worker.ref.fsdp.torch_dtype=fp32")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["worker.rollout.exact=true"], "worker.rollout.exact=true is for one device"),
        (
            ["worker.rollout.name=vllm", "worker.rollout.tensor_parallel_size=3"],
            "tensor_parallel_size=3 does not divide",
        ),
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
    [
        (),
        ("algorithm.disable_kl=false", "algorithm.use_kl_loss=true", "algorithm.kl_coef=0.01", *REFERENCE),
        ("algorithm.adv_estimator=gae", "worker.critic.global_batch_size=32"),
    ],
    ids=["", "kl", "critic"],
)
def test_two_ranks_train_as_one_process_does(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    pytest.importorskip("ray")
    alone = run(tmp_path / "alone", 1, 4, *arguments)
    assert_alike(run(tmp_path / "two", 2, 4, *arguments), alone)
    # and each goes on where the other stopped
    assert_alike(run(tmp_path / "two", 1, 6, *arguments), run(tmp_path / "alone", 2, 6, *arguments))
    assert not ray_processes()


@pytest.mark.slow
def test_a_rank_that_dies_is_named_and_the_run_can_go_on(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    error = killed_rank(tmp_path / "run", "trainer.n_gpus_per_node=2", rank=0)
    assert re.search(r"rank [01] \(process", error)  # either may have been started first


@pytest.mark.slow
def test_plain_generate_samples_on_ranks_too(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    greedy = ("worker.rollout.name=hf", "trainer.val_only=true", "worker.rollout.val_override_config={temperature: 0}")
    few = ("data.val_batch_size=32",)
    assert_alike(run(tmp_path / "two", 2, 1, *greedy, *few), run(tmp_path / "alone", 1, 1, *greedy, *few))


@pytest.mark.slow
def test_a_run_goes_on_by_itself_when_a_rank_dies(tmp_path: Path) -> None:
    """It ends with the metrics of a run that nobody disturbed, and leaves no process behind."""
    keys = ("trainer.max_steps=8", "trainer.save_freq=1", "trainer.n_gpus_per_node=2", *STEPS, "trainer.val_freq=-1")
    alone = run(tmp_path / "alone", 2, 8, "trainer.save_freq=1", "trainer.val_freq=-1")
    folder = tmp_path / "killed"
    arguments = [*keys, "trainer.max_restarts=2", f"trainer.save_checkpoint_path={folder}"]
    command = [sys.executable, "-m", "whet.cli", "train", QUICKSTART, *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    deadline = time.monotonic() + 180
    while not (folder / "global_step_2").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    started = psutil.Process(process.pid).children(recursive=True)
    hosts = [p for p in started if p.cmdline() and p.cmdline()[0].startswith("ray::Host")]
    os.kill(hosts[0].pid, signal.SIGKILL)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert "restarts left: 1" in error
    latest = {line["step"]: line for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())}
    for line in alone:
        for name, value in line.items():
            if not name.startswith(("timing_s/", "perf/")):
                assert latest[line["step"]][name] == value, name
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in started)
