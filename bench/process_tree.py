"""Ending a program with everything that it started, also what left its session or lost its parent, as Ray's does."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import psutil

_CHILD_SUBREAPER = 36  # of prctl(2)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies; call it before starting the program."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all(program: subprocess.Popen[bytes], seconds: float = 15.0) -> None:
    """Ask the program to end, wait so long, then kill all descendants of this process."""
    program.terminate()
    try:
        program.wait(seconds)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
    while left := psutil.Process().children(recursive=True):
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=1)
