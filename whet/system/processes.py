"""Processes that whet starts beside itself: how one ended, what it said last, and ending it with all it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from whet.system import groups
from whet.system.groups import Leader

_LINES = 15
_VANISH_SECONDS = 5.0  # for the system to clear away what was killed


def ending(process: subprocess.Popen[bytes]) -> str:
    """Describe how a process ended."""
    code = process.poll()
    if code is None:
        return "no longer answers"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def last_output(log: Path) -> str:
    """The end of a log, for an error message."""
    with contextlib.suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - 8192))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_LINES:])
    return "(nothing)"


def end_group(process: subprocess.Popen[bytes], leader: Leader, grace: float = 10.0) -> None:
    """Wait `grace` seconds for a process that was told to end, then end it and everything in the group it leads."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=grace)
    last = time.monotonic() + _VANISH_SECONDS
    while time.monotonic() < last and groups.end(leader):  # the group outlives its leader while a worker is left
        process.poll()
        time.sleep(0.02)
    process.wait()
