"""State of a run: running, finished or stopped."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import time
from pathlib import Path
from typing import Literal

Status = Literal["running", "finished", "stopped"]

_FLOCK = "hhqqi"  # struct flock of 64-bit Linux: type, whence, start, length, process
_TAIL = 4096
_FRESH_SECONDS = 60.0


def read_status(folder: Path) -> Status:
    """Return a run's state by the lock that its process holds, and by the last lines of its log."""
    held = _is_locked(folder / ".lock")
    if held or (held is None and _age(folder / "metrics.jsonl") < _FRESH_SECONDS):
        return "running"
    return "finished" if b"\nfinished after " in b"\n" + _tail(folder / "run.log") else "stopped"


def _is_locked(file: Path) -> bool | None:
    """Return True if a process holds the lock; None where the system does not say.

    The lock is asked about and never taken: a run that starts at this moment would find its folder in use.
    """
    if sys.platform != "linux" or struct.calcsize("P") != 8:
        return None
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _age(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return float("inf")


def _tail(file: Path) -> bytes:
    try:
        with file.open("rb") as content:
            content.seek(max(0, file.stat().st_size - _TAIL))
            return content.read()
    except OSError:
        return b""
