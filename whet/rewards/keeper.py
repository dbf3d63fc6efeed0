"""The process between trainer and worker: it ends all that the user's code started, and writes what that prints.

    trainer ── keeper ── worker ── whatever the reward function starts

The keeper runs none of the user's code. On Linux it is the subreaper of its descendants: a process that detached itself
(`setsid`, a double fork) becomes the keeper's child when its parent ends, so that "no children left" means that nothing
is left. Elsewhere only the worker's process group is ended. The lifeline is a socket between trainer and keeper: its
end tells the keeper that the trainer is done, or dead; when nothing is left, the keeper sends down it how the worker
ended. A function that kills its parent process kills its keeper, and with it (Linux) itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

from whet.rewards.capped_log import CappedLog
from whet.rewards.wire import END_SECONDS, STATUS, WHERE_SIGNAL

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(channel: int, lifeline: int, trace: int, log: str, scratch: str) -> None:
    """Start a worker and stay until it or the trainer ends.

    The arguments are inherited file descriptors, the file for prints, and a folder that the worker may make.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prints, sink = os.pipe()
    keeper = os.getpid()
    worker = os.fork()  # this interpreter is fresh: there are no threads to lose
    if worker == 0:
        _become_worker(keeper, channel, trace, (lifeline, prints), sink, scratch)
    for descriptor in (channel, trace, sink):
        os.close(descriptor)
    status = Keeper(worker, lifeline, prints, log).stay()
    if os.path.lexists(scratch):
        from whet.sandbox.boxes import remove

        with contextlib.suppress(OSError):
            remove(scratch)
    with contextlib.suppress(OSError):  # the trainer is gone
        os.write(lifeline, STATUS.pack(status))
    os._exit(0)


def _become_worker(keeper: int, channel: int, trace: int, unneeded: tuple[int, ...], sink: int, scratch: str) -> None:
    """Go on as the worker, in a session of its own. Does not return."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(0)
    for descriptor in unneeded:
        os.close(descriptor)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)
    from whet.rewards import worker

    worker.main(channel, trace, scratch)


class Keeper:
    """Waits for what happens to one worker."""

    def __init__(self, worker: int, lifeline: int, prints: int, log: str) -> None:
        self._worker, self._lifeline, self._prints = worker, lifeline, prints
        self._log: CappedLog | None = None
        with contextlib.suppress(OSError):  # a log that cannot be opened must not cost rewards
            self._log = CappedLog(log) if log else None
        self._status: int | None = None  # of the worker, once it has ended
        self._woken, wake = os.pipe()
        for descriptor in (self._woken, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(WHERE_SIGNAL, self._forward)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def stay(self) -> int:
        """Wait for the end of the worker or of the trainer, then end everything; returns the worker's wait status."""
        watched = [self._lifeline, self._prints, self._woken]
        self._reap()  # what ended before the handler was there
        while self._status is None:
            ready, _, _ = select.select(watched, [], [])
            if self._lifeline in ready:
                break
            if self._prints in ready and not self._copy_prints():
                watched.remove(self._prints)
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
        self._end_all()
        os.set_blocking(self._prints, False)
        with contextlib.suppress(BlockingIOError):
            while self._copy_prints():
                pass
        return self._status if self._status is not None else 0

    def _forward(self, number: int, _: object) -> None:
        if self._status is None:
            os.kill(self._worker, number)

    def _copy_prints(self) -> bool:
        """Write what can be read at once to the log; False when nobody is left to print."""
        data = os.read(self._prints, 1 << 16)
        if data and self._log is not None:
            self._log.write(data)
        return bool(data)

    def _reap(self) -> bool:
        """Take leave of the children that have ended; False when there are none at all."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._worker:
                    self._status = status
        except ChildProcessError:
            return False

    def _end_all(self) -> None:
        """Kill all descendants; as parents die, their children become ours."""
        give_up = time.monotonic() + END_SECONDS
        _kill(-self._worker)
        while self._reap() and time.monotonic() < give_up:
            for pid in children():
                _kill(pid)
            time.sleep(0.001)


def children() -> list[int]:
    """The pids of this process's children; on systems without /proc, none."""
    with contextlib.suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    found = []
    with contextlib.suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == os.getpid():
                    found.append(int(name))
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
