"""The processes that a program has started: how many there are, their memory, and how they all end."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PATIENCE = 0.0005  # seconds between two looks at processes that are about to end


class Tree:
    """Every process below the zygote, also those that have left their group or session.

    `proc` is a descriptor of /proc; None where it cannot be had. `alone`: no other process belongs to this user, or the
    zygote is process 1 of a PID namespace, so that a signal to -1 reaches all of them at once.
    """

    def __init__(self, proc: int | None, alone: bool) -> None:
        self._proc, self._alone = proc, alone
        self._own = os.getpid()

    def members(self) -> list[int]:
        """Return the process ids, parents before their children."""
        found, waiting = [], self._children(self._own)
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += self._children(pid)
        return found

    def tasks(self) -> int:
        """Count processes and their threads."""
        total = 0
        for pid in self.members():
            with contextlib.suppress(OSError):
                total += os.stat(f"{pid}/task", dir_fd=self._proc).st_nlink - 2
        return total

    def memory(self) -> int:
        """Return the bytes that all of them have in memory, without files that are mapped."""
        total = 0
        for pid in self.members() if self._proc is not None else ():
            with contextlib.suppress(OSError, ValueError, IndexError):
                pages = self._read(f"{pid}/statm").split()
                total += (int(pages[1]) - int(pages[2])) * _PAGE
        return total

    def end(self) -> None:
        """Kill all of them and wait until each is gone. Returns with no process left."""
        while self._reap():
            if self._alone:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            else:
                for pid in self.members():
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(_PATIENCE)

    def _reap(self) -> bool:
        """Wait for children that have ended; False if there are none left. Orphans are children of the zygote too."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def _children(self, pid: int) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(OSError):
            folder = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._proc)
            try:
                threads = os.listdir(folder)
            finally:
                os.close(folder)
            for thread in threads:
                with contextlib.suppress(OSError):
                    found += map(int, self._read(f"{pid}/task/{thread}/children").split())
        return found

    def _read(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_RDONLY, dir_fd=self._proc)
        try:
            return os.read(descriptor, 65536)
        finally:
            os.close(descriptor)
