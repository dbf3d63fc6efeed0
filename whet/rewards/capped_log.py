"""A log file that several processes append to and that stays under a size, keeping its beginning and its end."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

LIMIT = 16 << 20  # bytes a file may reach
KEPT = 4 << 20  # bytes kept of its beginning, and as many of its end, once it has reached that
MARK = f"\n[whet: output left out here; a log of {LIMIT >> 20} MiB is cut to its first and last {KEPT >> 20} MiB]\n"


class CappedLog:
    """One process's handle of the file; writers take turns by a lock on it. A full disk loses lines, nothing else."""

    def __init__(self, path: str) -> None:
        # Not O_APPEND: Linux's pwrite would then append too.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes) -> None:
        """Append, and cut the middle out of a file that has become too large."""
        with contextlib.suppress(OSError), self._turn():
            end = os.lseek(self._file, 0, os.SEEK_END)
            end += os.write(self._file, data)
            if end >= LIMIT:
                self._cut(end)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock; on a file system without locks, write all the same."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _cut(self, size: int) -> None:
        tail = os.pread(self._file, KEPT, size - KEPT)
        os.ftruncate(self._file, KEPT)
        os.lseek(self._file, KEPT, os.SEEK_SET)
        os.write(self._file, MARK.encode() + tail)
