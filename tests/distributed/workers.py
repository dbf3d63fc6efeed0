"""Workers for tests of groups; in a module of their own, because worker processes import them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

from whet.distributed import Rank, alive
from whet.errors import UserError


class Worker:
    """Does what tests need a rank to do, and leaves a mark when it is closed."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.mark: str | None = None

    def who(self) -> tuple[Rank, int]:
        """Its rank and process."""
        return self.rank, os.getpid()

    def environment(self, name: str) -> str | None:
        """A variable as the worker sees it."""
        return os.environ.get(name)

    def double(self, number: Any) -> Any:
        """Twice the argument."""
        return number * 2

    def add(self, first: int, second: int = 0) -> int:
        """A sum, for keyword arguments."""
        return first + second

    def all_reduce(self, number: float) -> float:
        """The sum over ranks, by torch.distributed."""
        import torch
        import torch.distributed as dist

        value = torch.tensor([number + self.rank.rank])
        dist.all_reduce(value)
        return value.item()

    def torch_threads(self) -> int:
        """As many as torch found reason to take when it was imported."""
        import torch

        return torch.get_num_threads()

    def fail(self, only: int, sentence: str | None = None) -> None:
        """One rank raises, the others return."""
        if self.rank.rank == only:
            if sentence:
                raise UserError(sentence)
            raise LookupError("nothing there")

    def fail_before_collective(self, only: int) -> None:
        """One rank raises where the others wait for it."""
        self.fail(only)
        self.all_reduce(1.0)

    def die(self, only: int) -> None:
        """One rank is killed while the others work."""
        if self.rank.rank == only:
            print("these are my last words")
            os.kill(os.getpid(), signal.SIGKILL)
        self.compute(60)

    def die_before_collective(self, only: int) -> None:
        """One rank is killed where the others wait for it."""
        if self.rank.rank == only:
            os.kill(os.getpid(), signal.SIGKILL)
        self.all_reduce(1.0)

    def sleep_before_collective(self, only: int, seconds: float) -> None:
        """One rank does nothing where the others wait for it."""
        if self.rank.rank == only:
            time.sleep(seconds)
        self.all_reduce(1.0)

    def wait_outside(self, seconds: float) -> str:
        """Wait for something outside, and say so."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            alive()
            time.sleep(0.5)
        return "done"

    def compute(self, seconds: float) -> int:
        """Use the processor for so long."""
        end, turns = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            turns += 1
        return turns

    def stop(self) -> None:
        """Stop as under a debugger: not even a thread runs on."""
        os.kill(os.getpid(), signal.SIGSTOP)

    def start_child(self) -> int:
        """A process that would outlive the worker."""
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]).pid

    def mark_when_closed(self, file: str) -> None:
        """Where `close` writes."""
        self.mark = file

    def close(self) -> None:
        """The end of the worker."""
        if self.mark:
            with open(self.mark, "a") as file:
                file.write(f"{self.rank.rank}\n")


class Unbuildable:
    """A worker whose construction fails on one rank."""

    def __init__(self, rank: Rank) -> None:
        if rank.rank == rank.world - 1:
            raise UserError("worker.actor.model.model_path: no such folder")
