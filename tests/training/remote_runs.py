"""Runs on several devices for tests: their metrics, and what becomes of them when a rank is killed."""

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
from whet.config.examples import examples_folder

QUICKSTART = f"config={examples_folder() / 'quickstart.yaml'}"
STEPS = ("trainer.val_freq=2", "trainer.val_generations_to_log=0", "trainer.device=cpu", "trainer.quiet=true")


def run(folder: Path, devices: int, steps: int, *arguments: str) -> list[dict[str, float]]:
    keys = [f"trainer.n_gpus_per_node={devices}", f"trainer.max_steps={steps}"]
    assert main(["train", QUICKSTART, *keys, *STEPS, f"trainer.save_checkpoint_path={folder}", *arguments]) == 0
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_alike(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.keys() == b.keys()
        for name, value in a.items():
            if not name.startswith(("timing_s/", "perf/")):
                assert b[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


def killed_rank(folder: Path, *arguments: str, rank: int) -> str:
    """Kill one process of a run after its first checkpoint: it must end with 1 and leave nothing; what it said.

    `rank` counts through the processes in the order in which they were started.
    """
    keys = ["trainer.max_steps=500", "trainer.save_freq=2", *STEPS, "trainer.val_freq=-1", *arguments]
    command = [sys.executable, "-m", "whet.cli", "train", QUICKSTART, *keys, f"trainer.save_checkpoint_path={folder}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    saved = folder / "global_step_2"
    deadline = time.monotonic() + 120
    while not saved.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    started = psutil.Process(process.pid).children(recursive=True)
    hosts = [p for p in started if p.cmdline() and p.cmdline()[0].startswith("ray::Host")]
    victim = sorted(hosts, key=lambda p: p.create_time())[rank]
    os.kill(victim.pid, signal.SIGKILL)
    _, error = process.communicate(timeout=180)
    assert process.returncode == 1, error
    assert f"(process {victim.pid} on " in error
    assert "this goes on from it: whet train" in error
    assert saved.exists()
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in hosts)
    return error


def ray_processes() -> list[psutil.Process]:
    """What is left of Ray below this process."""
    return [p for p in psutil.Process().children(recursive=True) if "ray" in p.name()]
