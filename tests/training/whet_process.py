"""`whet` in a process of its own, started in a moment: forked from a server that has imported torch once.

Everything else is as on a command line: the process has its own folder, output, exit code and signals, and a SIGKILL
ends it as it ends any other.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fork_server import Ended, forked, run_forked

from whet.config.examples import examples_folder
from whet.tracking import read_metrics

_COUNT = itertools.count()

QUICKSTARTS = {
    "train": f"config={examples_folder() / 'quickstart.yaml'}",
    "sft": f"config={examples_folder() / 'sft/quickstart.yaml'}",
}
# Nothing here depends on the numbers in examples/quickstart.yaml, which are tuned for people.
SMALL = (
    "trainer.device=cpu",  # the same bits are promised on a CPU
    "data.rollout_batch_size=4",
    "worker.rollout.n=4",
    "worker.rollout.val_override_config.n=2",
    "worker.actor.global_batch_size=4",
    "trainer.max_steps=6",
    "trainer.save_freq=2",
    "trainer.save_limit=-1",
    "trainer.val_freq=3",
    "trainer.val_generations_to_log=1",
)


@dataclass
class WhetProcess:
    """A started command."""

    folder: Path
    output: Path
    process: Any

    def text(self) -> str:
        """What it printed so far, on both streams."""
        return self.output.read_text() if self.output.exists() else ""

    def wait(self, seconds: float = 120.0) -> int:
        """Its exit code; a command that hangs is killed and fails the test."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"still running after {seconds} s:\n{self.text()}")
        return self.process.exitcode

    def wait_for(self, happened: Any, seconds: float = 120.0) -> bool:
        """Whether `happened()` became true while the process was running."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.is_alive():
            if happened():
                return True
            time.sleep(0.002)
        return False

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.join()

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        os.kill(self.process.pid, number)


def start(
    folder: Path,
    *arguments: str,
    typed: Path | None = None,
    own_group: bool = False,
    terminal: Path | None = None,
) -> WhetProcess:
    """Start `whet arguments` in `folder`, from the quickstart of `train` and `sft` where no config= is named.

    `typed` is a file, or a pipe with a name, that it reads its input from; `own_group` makes it lead a process group;
    `terminal` is one that it writes to, instead of a file.
    """
    if arguments[0] in QUICKSTARTS and not any(each.startswith("config=") for each in arguments):
        arguments = (arguments[0], QUICKSTARTS[arguments[0]], *arguments[1:])
    folder.mkdir(parents=True, exist_ok=True)
    output = terminal or folder / f"output-{next(_COUNT)}.txt"
    process = forked(_main, list(arguments), str(folder), str(output), typed, own_group)
    process.start()
    return WhetProcess(folder, output, process)


def train(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run `whet train` with the small sizes above and the given arguments to its end: exit code and output."""
    process = start(folder, "train", *SMALL, *arguments)
    return process.wait(), process.text()


def run_whet(folder: Path, *arguments: str, typed: str = "", seconds: float = 600.0) -> Ended:
    """Run `whet arguments` in `folder` to its end, with `typed` as its input and its two outputs kept apart."""
    return run_forked(_whet, list(arguments), folder=folder, typed=typed, seconds=seconds)


def _whet(arguments: list[str]) -> int:
    from whet.cli import main

    return main(arguments)


def _main(arguments: list[str], folder: str, output: str, typed: Path | None, own_group: bool) -> None:
    os.chdir(folder)
    if own_group:
        os.setsid()
    if typed is not None:
        os.dup2(os.open(typed, os.O_RDONLY), 0)
        sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing has put another in its place
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if os.isatty(descriptor):
        os.environ |= {"TERM": "xterm", "COLUMNS": "150"}
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    from whet.cli import main

    sys.exit(main(arguments))


def run_folder(folder: Path, experiment: str = "quickstart") -> Path:
    """Where a run started in `folder` writes."""
    return folder / "checkpoints" / "whet" / experiment


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A jsonl file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def settled(metrics: Path) -> list[dict[str, Any]]:
    """The metrics of a run without those that measure the machine."""
    machine = ("timing_s/", "perf/")
    return [{k: v for k, v in line.items() if not k.startswith(machine)} for line in read_metrics(metrics)]


def outcome(run: Path, step: int) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """What two runs that did the same share to the last bit: weights, optimizer, metrics."""
    actor = run / f"global_step_{step}" / "actor"
    weights = (actor / "huggingface" / "model.safetensors").read_bytes()
    return weights, (actor / "optimizer.pt").read_bytes(), settled(run / "metrics.jsonl")
