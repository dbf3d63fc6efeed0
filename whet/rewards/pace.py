"""Requests and tokens per second, kept by all workers of a run together through one small file.

The file holds two times of the machine's monotonic clock: when the next request may go, by either rate. A worker locks
it, takes the later of both as its own time, and moves them on by the cost of its request.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from dataclasses import dataclass

_TIMES = struct.Struct("!dd")


class TooSlowError(Exception):
    """The rates leave no time for a request before its deadline."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Rates that several processes keep together; None is no limit."""

    file: str
    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    section: str = "worker.reward.remote"  # of the config, for messages
    deadline: str = "worker.reward.timeout"

    def wait(self, tokens: int, most: float) -> None:
        """Wait until a request with so many tokens may go; TooSlowError if that is later than `most` seconds."""
        if self.requests_per_second is None and self.tokens_per_second is None:
            return
        time.sleep(self.reserve(tokens, most))

    def reserve(self, tokens: int, most: float) -> float:
        """Take the next place, and return the seconds until then."""
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            stored = os.pread(descriptor, _TIMES.size, 0)
            times = _TIMES.unpack(stored) if len(stored) == _TIMES.size else (0.0, 0.0)
            now = time.monotonic()
            start = max(now, *times)
            if start - now > most:
                raise TooSlowError(
                    f"{self.section}.requests_per_second={self.requests_per_second} and tokens_per_second="
                    f"{self.tokens_per_second} leave no time for this request within {self.deadline}"
                )
            request = start + 1 / self.requests_per_second if self.requests_per_second else start
            token = start + tokens / self.tokens_per_second if self.tokens_per_second else start
            os.pwrite(descriptor, _TIMES.pack(request, token), 0)
            return start - now
        finally:
            os.close(descriptor)
