"""Processes that run vLLM: how one ended, what it said last, and ending it with all it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

_GRACE_SECONDS = 10.0
_LINES = 15


def ending(process: subprocess.Popen[bytes]) -> str:
    """How a process ended, in words."""
    code = process.poll()
    if code is None:
        return "no longer answers"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def last_words(log: Path) -> str:
    """The end of a log, for an error message."""
    with contextlib.suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - 8192))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_LINES:])
    return "(nothing)"


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Wait a moment for a process that was told to end, then end it and everything in its group."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # the group outlives its leader while a worker is left
    process.wait()
