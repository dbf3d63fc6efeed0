"""A process that outlives a killed trainer for a moment, and ends the commands that it left behind.

It reads lines `+PID STARTED SESSION` and `-PID` from its standard input. The end of that, whatever happened to the
trainer, is the sign to end every process group that is still on the list.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading

from whet.system import groups


class Watch:
    """The trainer's side; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, leader: groups.Leader) -> None:
        """Put a process group on the list; the first one starts the process."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__], stdin=subprocess.PIPE, start_new_session=True
                )
            self._write(f"+{leader.pid} {leader.started} {leader.session}\n")

    def remove(self, leader: groups.Leader) -> None:
        """Take a group that has been ended off the list."""
        with self._lock:
            self._write(f"-{leader.pid}\n")

    def close(self) -> None:
        """End the process, and with it whatever is still on the list."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()

    def _write(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # somebody ended it: commands are ended by the trainer alone
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()


def main() -> None:
    """Keep the list until standard input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    known: dict[int, groups.Leader] = {}
    for line in sys.stdin:
        pid, *rest = (int(word) for word in line[1:].split())
        if line.startswith("+"):
            known[pid] = groups.Leader(pid, *rest)
        else:
            known.pop(pid, None)
    for leader in known.values():
        groups.end(leader)


if __name__ == "__main__":
    main()
