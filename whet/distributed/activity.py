"""Progress of this process: seconds without processor time, and whether it waits for other ranks.

A worker that sleeps for ever, or waits for an answer that never comes, uses none; one that computes, loads or drives a
GPU does. Ranks that wait in a collective use none either, but through no fault of theirs. Linux only: elsewhere every
worker counts as busy.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whet.distributed.frames import Beat

_PROGRESS = 0.02  # processor seconds; two ticks of the kernel's clock
_TICK = os.sysconf("SC_CLK_TCK")
_COLLECTIVES = os.sep + os.path.join("torch", "distributed") + os.sep

_last_sign = time.monotonic()  # of life, by `alive`
_waits = 0  # for other ranks, by `waiting_for_ranks`


def alive() -> None:
    """Called by a worker that waits for something outside (a server, a download): it is not stuck."""
    global _last_sign
    _last_sign = time.monotonic()


@contextmanager
def waiting_for_ranks() -> Iterator[None]:
    """Inside, a worker waits for other ranks in a way that cannot be told from its stack, as from a collective's."""
    global _waits
    _waits += 1
    try:
        yield
    finally:
        _waits -= 1


class Activity:
    """Watches the threads of this process that came after Ray's own, and every process that it started."""

    def __init__(self) -> None:
        self._foreign = _threads() - {os.getpid()}  # Ray's, which are never quite at rest
        self._used = 0.0
        self._since = time.monotonic()
        self._call: tuple[int, float] | None = None  # number and start

    def begin(self, call: int) -> None:
        """A call starts: the clock of its idleness too."""
        self._call = (call, time.monotonic())

    def end(self) -> None:
        """The call is over."""
        self._call = None

    def read(self) -> Beat:
        """The next heartbeat. Called by one thread, which is not counted."""
        self._foreign.add(threading.get_native_id())
        used = _processor_seconds(self._foreign)
        now = time.monotonic()
        if used is None or abs(used - self._used) >= _PROGRESS:
            self._used, self._since = used or 0.0, now
        call = self._call
        if call is None:
            return Beat(None, 0.0, False)
        return Beat(call[0], max(0.0, now - max(self._since, call[1], _last_sign)), _in_collective())


def _in_collective() -> bool:
    if _waits:
        return True
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if _COLLECTIVES in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _threads(process: int | str = "self") -> set[int]:
    folder = Path(f"/proc/{process}/task")
    return {int(name) for name in os.listdir(folder)} if folder.is_dir() else set()


def _processor_seconds(foreign: set[int]) -> float | None:
    """Return the processor seconds of this process, foreign threads aside, and its descendants; None without /proc."""
    if not Path("/proc/self/stat").exists():
        return None
    own = sum(_used(f"/proc/self/task/{thread}/stat") for thread in _threads() - foreign)
    ended = os.times()
    return own + sum(map(_used_by_all, _descendants("self"))) + ended.children_user + ended.children_system


def _descendants(process: int | str) -> set[int]:
    found: set[int] = set()
    try:
        for thread in _threads(process):
            found |= {int(child) for child in Path(f"/proc/{process}/task/{thread}/children").read_text().split()}
    except OSError:  # it ended just now, or this kernel does not list children
        return found
    return found.union(*map(_descendants, found))


def _used_by_all(process: int) -> float:
    """Return the processor time of a process and of its ended children."""
    return _used(f"/proc/{process}/stat", last=15)


def _used(file: str, last: int = 13) -> float:
    """utime and stime of proc(5), which come eleven after the state; then those of ended children."""
    try:
        fields = Path(file).read_text().rpartition(")")[2].split()
    except OSError:  # it ended just now
        return 0.0
    return sum(map(int, fields[11:last])) / _TICK
