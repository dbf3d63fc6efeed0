"""End processes that environments and tools have started when the trainer is killed.

Every process that is started while environments play inherits a variable. A second process waits for the trainer's end;
if that comes without a goodbye, it ends all that carry the variable, also those that left their group or session.
Where there is no /proc nothing can be found, and nothing is ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

VARIABLE = "WHET_STARTED_BY"
_GOODBYE = b"."
_ROUNDS = 20  # looks for processes, which may start others before they are ended
_PAUSE = 0.05


class Orphans:
    """The trainer's side; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._before: str | None = None

    def begin(self) -> None:
        """Mark processes that are started from now on; the first call starts the second process."""
        with self._lock:
            if self._process is not None or not Path("/proc/self/environ").exists():
                return
            name = f"{os.getpid()}-{secrets.token_hex(8)}"
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__)), name], stdin=subprocess.PIPE, start_new_session=True
            )
            self._before = os.environ.get(VARIABLE)
            os.environ[VARIABLE] = name

    def close(self) -> None:
        """Mark nothing any more, and end the second process; what environments have left running is theirs."""
        with self._lock:
            process, self._process = self._process, None
            if process is None or process.stdin is None:
                return
            os.environ.pop(VARIABLE, None)
            if self._before is not None:
                os.environ[VARIABLE] = self._before
        with contextlib.suppress(OSError):
            process.stdin.write(_GOODBYE)
            process.stdin.close()
        process.wait()


def marked(name: str) -> list[int]:
    """Return the processes that carry a name, as they were started."""
    wanted = f"{VARIABLE}={name}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def main(name: str) -> None:
    """Wait for the end of standard input, then end what is marked unless there was a goodbye."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read().endswith(_GOODBYE):
        return
    for _ in range(_ROUNDS):  # all of them: a process that was just forked carries the name once it has begun
        for pid in marked(name):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main(sys.argv[1])
