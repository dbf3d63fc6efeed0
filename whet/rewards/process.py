"""The trainer's end of one worker process: start it, hand it a call, read the reply, kill it.

Workers are started by executing a fresh interpreter. `fork` would copy torch's threads in an unknown state, and
multiprocessing's `spawn` runs the trainer's main module again, which imports torch. No read or write here blocks for
longer than `IO_SECONDS`, whatever state the worker is in.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import takewhile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from whet.rewards.function import RewardSource
from whet.rewards.worker import PACKAGE_FOLDER, WHERE_SIGNAL

IO_SECONDS = 10
START_SECONDS = 120.0  # reward files may import large packages
TRACE_SECONDS = 0.1
REPLY_LIMIT = 1 << 26  # bytes

_BOOT = (
    "import sys; fds = map(int, sys.argv[1:4]); sys.path[:] = sys.argv[4:]; "
    "from whet.rewards.worker import main; main(*fds)"
)


class WorkerGoneError(Exception):
    """The worker ended, or no longer keeps to the protocol; the message says how."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What every worker of a pool is started with."""

    source: RewardSource
    declared: str | None  # worker.reward.reward_type
    options: dict[str, Any]  # worker.reward.reward_function_kwargs
    output: Path | None = None  # where the function's prints go; None drops them


class WorkerProcess:
    """One worker, from its start to its end."""

    def __init__(self, setup: WorkerSetup) -> None:
        ours, theirs = socket.socketpair()
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", IO_SECONDS, 0))
        lifeline, self._lifeline = os.pipe()  # its closing, also by our death, ends the worker
        self._trace, trace = os.pipe()
        inherited = (theirs.fileno(), lifeline, trace)
        paths = [entry for entry in sys.path if isinstance(entry, str)]
        sink = open(setup.output, "ab") if setup.output else open(os.devnull, "wb")  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-c", _BOOT, *map(str, inherited), *paths],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                pass_fds=inherited,
                env=_environment(),
                start_new_session=True,  # Ctrl-C reaches the trainer only; kill() reaches all that a worker started
            )
        finally:
            sink.close()
            theirs.close()
            os.close(lifeline)
            os.close(trace)
        self.channel = Connection(ours.detach())
        self.ready = False
        self.batch = False
        self.task: int | None = None  # what it is working on
        self.deadline = time.monotonic() + START_SECONDS
        self._write(pickle.dumps((setup.source, setup.declared, setup.options)))

    def call(self, task: int, payload: bytes, budget: float) -> None:
        """Hand over a call; its clock starts now."""
        self.task = task
        self.deadline = time.monotonic() + budget
        self._write(payload)

    def receive(self) -> dict[str, Any]:
        """The message that `channel` has ready."""
        try:
            return json.loads(self.channel.recv_bytes(REPLY_LIMIT))
        except (EOFError, OSError):
            raise WorkerGoneError(self._ending()) from None
        except ValueError:
            raise WorkerGoneError("its reply could not be read; reward code must not write to unknown files") from None

    def where(self) -> str:
        """The user's frames in a worker that does not answer, innermost first; empty when it cannot tell."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, WHERE_SIGNAL)
        text = b""
        end = time.monotonic() + TRACE_SECONDS
        while (left := end - time.monotonic()) > 0 and select.select([self._trace], [], [], left)[0]:
            piece = os.read(self._trace, 4096)
            text += piece
            if not piece or len(text) > 4096:
                break
            end = min(end, time.monotonic() + TRACE_SECONDS / 5)
        lines = text.decode(errors="replace").splitlines()
        return "\n".join(takewhile(lambda line: PACKAGE_FOLDER not in line, lines))

    def is_alive(self) -> bool:
        """Whether the process is still there."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End the worker and all that the user's code started in it, at once."""
        if self.channel.closed:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1)
        self.channel.close()
        os.close(self._lifeline)
        os.close(self._trace)

    def _write(self, payload: bytes) -> None:
        with contextlib.suppress(OSError):  # gone or stuck: the read that follows, or the deadline, says so
            self.channel.send_bytes(payload)

    def _ending(self) -> str:
        try:
            code = self.process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            return "the worker process closed its pipe"
        if code < 0:
            return f"the worker process was killed by {signal.Signals(-code).name}"
        return f"the worker process exited with code {code}"


def _environment() -> dict[str, str]:
    """Ours, with string hashes fixed (a set's order must not differ between workers) and one thread per worker."""
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONHASHSEED": "0"}
