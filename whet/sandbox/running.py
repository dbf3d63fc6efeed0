"""One execution as the trainer's process sees it: its pipes, its bounds on output, its end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from whet.sandbox.limits import Limits, Result, Status

GRACE = 10.0  # seconds beyond the time limit after which a zygote counts as lost
REPLY_BYTES = 8 << 20  # of a result channel
_PIECE = 1 << 16
_WHY: dict[str, Status] = {"timeout": "timeout", "memory": "memory_limit", "disk": "disk_limit"}


class Capture:
    """Bytes of one pipe, up to a bound."""

    def __init__(self, descriptor: int, most: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor, self._most = descriptor, most
        self._pieces: list[bytes] = []
        self._size = 0
        self.open = True

    @property
    def full(self) -> bool:
        """True if there was more than the bound."""
        return self._size > self._most

    def read(self) -> None:
        """Take what is there."""
        while self.open and not self.full:
            try:
                piece = os.read(self.descriptor, _PIECE)
            except BlockingIOError:
                return
            if not piece:
                self.close()
                return
            self._pieces.append(piece)
            self._size += len(piece)

    def close(self) -> None:
        """Read no more."""
        if self.open:
            os.close(self.descriptor)
            self.open = False

    def bytes(self) -> bytes:
        """Return what was read, cut at the bound."""
        return b"".join(self._pieces)[: self._most]

    def text(self) -> str:
        """Return the same as text; bytes that are no UTF-8 become U+FFFD."""
        return self.bytes().decode("utf-8", "replace")


class Running:
    """An execution that a zygote has begun."""

    def __init__(self, channel: socket.socket, limits: Limits, stdout: int, stderr: int, reply: int | None) -> None:
        self._channel, self._limits = channel, limits
        self.stdout, self.stderr = (Capture(each, limits.output_bytes) for each in (stdout, stderr))
        self.reply = Capture(reply, REPLY_BYTES) if reply is not None else None
        self._deadline = time.monotonic() + limits.timeout + GRACE
        self._killed: str = ""
        self._end: dict[str, Any] | None = None
        self.lost = False  # the zygote has not answered, and must be replaced
        self.crash = "it did not answer"

    @property
    def done(self) -> bool:
        """True once everything that was started has ended."""
        return self._end is not None or self.lost

    def kill(self, why: str) -> None:
        """End it now."""
        if not self._killed and not self.done:
            self._killed = why
            with contextlib.suppress(OSError):
                self._channel.send(b'{"kind": "kill"}')

    def descriptors(self) -> list[int]:
        """Return what to wait for."""
        captures = [each for each in self._captures() if each.open and not each.full]
        return [self._channel.fileno(), *(each.descriptor for each in captures)]

    def step(self, ready: set[int]) -> None:
        """Read what has arrived."""
        for capture in self._captures():
            if capture.open and capture.descriptor in ready:
                capture.read()
                if capture.full:
                    self.kill("output")
        if self._channel.fileno() in ready:
            try:
                message = self._channel.recv(65536)
            except OSError:
                message = b""
            end = json.loads(message) if message else {"crash": "it ended"}
            self.lost = "crash" in end
            if self.lost:
                self.crash = end["crash"]
            else:
                self._end = end
        if time.monotonic() > self._deadline:
            self.lost = True

    def result(self) -> Result:
        """Return the outcome, once `done`. All writers have ended, so that the pipes hold the rest of the output."""
        for capture in self._captures():
            if not self.lost:
                capture.read()
            capture.close()
        end = self._end
        if end is None:
            return Result(
                "lost",
                None,
                self.stdout.text(),
                self.stderr.text(),
                self._limits.timeout,
                (f"supervision: {self.crash}",),
            )
        code = os.waitstatus_to_exitcode(end["status"])
        status = self._status(end, code)
        limit = {"memory_limit": "memory", "output_limit": "output", "timeout": "time", "disk_limit": "disk"}
        refused = [*end["refused"], *([limit[status]] if status in limit else [])]
        ended_here = end["why"] != "exit" and code == -signal.SIGKILL
        reply = self.reply.bytes() if self.reply else b""
        return Result(
            status,
            None if ended_here else code,
            self.stdout.text(),
            self.stderr.text(),
            end["seconds"],
            tuple(refused),
            reply=reply,
        )

    @property
    def problem(self) -> str:
        """Return why the process could not be confined; empty if it was."""
        return self._end["problem"] if self._end else ""

    def _status(self, end: dict[str, Any], code: int) -> Status:
        if any(capture.full for capture in self._captures()):
            return "output_limit"
        if end["why"] in _WHY:
            return _WHY[end["why"]]
        if code == -signal.SIGXCPU:
            return "timeout"
        if code == 0:
            return "ok"
        if end["peak_mb"] >= 0.9 * self._limits.memory_mb or self._says_memory():
            return "memory_limit"
        return "signal" if code < 0 else "error"

    def _says_memory(self) -> bool:
        """True if the program says itself that memory ran out; only the name of the failure depends on it."""
        last = self.stderr.bytes()[-400:]
        return b"\nMemoryError" in last or b"std::bad_alloc" in last

    def _captures(self) -> list[Capture]:
        return [self.stdout, self.stderr, *([self.reply] if self.reply else [])]


def wait(runs: Sequence[Running], until: Running | None = None) -> None:
    """Wait until all executions are done. When `until` is, the others are ended."""
    while left := [run for run in runs if not run.done]:
        poll = select.poll()
        for run in left:
            for descriptor in run.descriptors():
                poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(500)}
        for run in left:
            run.step(ready)
        if until is not None and until.done:
            for run in runs:
                run.kill("over")
