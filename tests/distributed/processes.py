"""What runs: for tests that nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from patience import PATIENCE, eventually

RAY_NAMES = ("gcs_server", "raylet")


def gone(pid: int, seconds: float = PATIENCE) -> bool:
    """Return True once a process has ended, False if it still runs after this time."""
    return eventually(lambda: _has_ended(pid), seconds)


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def children() -> set[int]:
    """Every living descendant of this process."""
    return {each.pid for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE}


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail when a process that was started inside outlives it."""
    before = children()
    yield
    assert eventually(lambda: not children() - before), [psutil.Process(pid).cmdline() for pid in children() - before]
