"""State of the worker process that a call may change for the calls after it: noted once, put back after each call.

Only what would make another sample fail or hang: lowered limits, a pending alarm, replaced built-in functions, the
working folder. What a module keeps for itself (caches, connections, threads) is the user's.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
from os import O_RDONLY, fchdir
from os import open as open_descriptor
from resource import (
    RLIM_INFINITY,
    RLIMIT_AS,
    RLIMIT_CPU,
    RLIMIT_DATA,
    RLIMIT_FSIZE,
    RLIMIT_NOFILE,
    getrlimit,
    setrlimit,
)
from signal import ITIMER_REAL, SIG_BLOCK, SIG_SETMASK, pthread_sigmask, setitimer
from sys import getrecursionlimit, setrecursionlimit

_LIMITS = (RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE)
_waitid = getattr(os, "waitid", None)  # macOS has it since Python 3.13
_threads = sys._current_frames  # a function in C, which counts also what `threading` does not know of


class Baseline:
    """The process as it was when the function had been loaded."""

    def __init__(self) -> None:
        self._folder: int | None = None
        with contextlib.suppress(OSError):  # a folder that cannot be read
            self._folder = open_descriptor(".", O_RDONLY)
        self._recursion = getrecursionlimit()
        self._limits = {limit: getrlimit(limit) for limit in _LIMITS}
        self._signals = pthread_sigmask(SIG_BLOCK, [])
        self._builtins, self._originals = vars(builtins), dict(vars(builtins))
        self._threads = len(_threads())
        self._has_children = _has_children()

    def restore(self) -> bool:
        """Put things back; False when the process must not score another sample."""
        self._builtins.update(self._originals)
        try:
            setitimer(ITIMER_REAL, 0)
            pthread_sigmask(SIG_SETMASK, self._signals)
            if getrecursionlimit() < self._recursion:
                setrecursionlimit(self._recursion)
            for limit, (soft, hard) in self._limits.items():
                if _below(getrlimit(limit)[0], soft):
                    setrlimit(limit, (soft, hard))
            if self._folder is not None:
                fchdir(self._folder)
        except (OSError, ValueError, RecursionError):
            return False
        return True

    def is_busy(self) -> bool:
        """True if calls have left threads or child processes behind, which may disturb the calls after them."""
        return len(_threads()) > self._threads or (not self._has_children and _has_children())


def _has_children() -> bool:
    if _waitid is None:
        return False
    try:
        _waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return False
    return True


def _below(value: int, other: int) -> bool:
    return value != other and value != RLIM_INFINITY and (other == RLIM_INFINITY or value < other)
