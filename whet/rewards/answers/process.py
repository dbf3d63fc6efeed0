"""A process for mathematics: sympy and math-verify run there, each call in a fork with limits on time and memory.

Expressions come from a model. `9^{9^{9}}` needs more memory than there is, and sympy may think for hours; math-verify's
own time limits are signals, which work in main threads only and do not interrupt C code. Here a call ends after
`SECONDS` whatever it does, and costs nothing but its time: the process has imported everything and forks for each call.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import threading
import time
from functools import cache
from typing import Any

from whet.errors import UserError

SECONDS = 5.0  # of one call
START_SECONDS = 60.0  # for the imports
GRACE_SECONDS = 5.0  # in which the process says that a call took too long
NEEDED = ("math_verify", "pylatexenc", "sympy")
_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from whet.rewards.answers.forked import serve; serve()"


class MathsError(Exception):
    """A call that did not finish: out of time, out of memory, or an error of the library's."""


def require_maths(name: str) -> None:
    """Raise UserError if the packages are missing that compare mathematics."""
    missing = [package for package in NEEDED if importlib.util.find_spec(package) is None]
    if missing:
        raise UserError(f"the scorer {name} needs {', '.join(missing)}: install it with pip install 'whet[math]'")


class Maths:
    """The process, started when it is first needed. Calls may come from any thread; one runs at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def call(self, function: str, *arguments: Any, seconds: float = SECONDS) -> Any:
        """Return what a function of comparing.py returns; MathsError where it does not finish."""
        with self._lock:
            process = self._running()
            try:
                return _answer(process, {"call": function, "arguments": arguments, "seconds": seconds}, seconds)
            except (OSError, EOFError, ValueError) as error:
                self._end()
                raise MathsError(f"the process for mathematics ended: {error}") from error

    def verdict(self, function: str, *arguments: Any, seconds: float = SECONDS) -> bool:
        """The result of a comparison; False where it does not finish."""
        try:
            return bool(self.call(function, *arguments, seconds=seconds))
        except MathsError:
            return False

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return self._process
        require_maths("of mathematics")
        paths = [entry for entry in sys.path if isinstance(entry, str)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._owner = os.getpid()
        try:
            _answer(self._process, {"call": "ready", "arguments": [], "seconds": START_SECONDS}, START_SECONDS)
        except (OSError, EOFError, ValueError) as error:
            self._end()
            raise RuntimeError(f"the process for mathematics did not start: {error}") from error
        return self._process

    def _end(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        self._process = None


@cache
def maths() -> Maths:
    """The process of this interpreter."""
    found = Maths()
    atexit.register(found.close)
    return found


def _answer(process: subprocess.Popen[bytes], message: dict[str, Any], seconds: float) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = time.monotonic() + seconds + GRACE_SECONDS
    left = memoryview(json.dumps(message).encode() + b"\n")
    while left:
        left = left[process.stdin.write(left) :]
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise OSError("it does not answer")
        piece = os.read(process.stdout.fileno(), 1 << 16)
        if not piece:
            raise EOFError("it is gone")
        line += piece
    answer = json.loads(line)
    if "error" in answer:
        raise MathsError(answer["error"])
    return answer["result"]
