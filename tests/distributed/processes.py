"""What runs: for tests that nothing is left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

RAY_NAMES = ("gcs_server", "raylet")


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process has ended, or does so soon."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def children() -> set[int]:
    """Every living descendant of this process."""
    return {each.pid for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE}


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail when a process that was started inside outlives it."""
    before = children()
    yield
    end = time.monotonic() + 10
    while (left := children() - before) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, [psutil.Process(pid).cmdline() for pid in left]
