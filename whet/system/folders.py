"""The folder that programs' files are made in."""

from __future__ import annotations

import contextlib
import os

_MEMORY, _ROOM = "/dev/shm", 1 << 30  # bytes


def fast_folder() -> str | None:
    """Return /dev/shm where it can hold programs' files: making and removing them costs a disk milliseconds each."""
    with contextlib.suppress(OSError):
        found = os.statvfs(_MEMORY)
        roomy = found.f_bavail * found.f_frsize >= _ROOM and found.f_favail >= 1 << 16
        if roomy and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) and os.access(_MEMORY, os.W_OK | os.X_OK):
            return _MEMORY
    return None
