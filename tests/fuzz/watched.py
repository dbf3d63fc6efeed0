"""Run something on malformed input: it may succeed or raise a `UserError`, within five seconds of processor time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from patience import PATIENCE

from whet.errors import UserError

LIMIT = 5.0  # seconds of processor time: those of the clock are also other processes'


class HungError(BaseException):
    """Work that took too long; no `except Exception` on the way catches it."""


def message_of(work: Callable[[], Any]) -> str | None:
    """The message of the `UserError` that `work` raises, or None if it succeeds; anything else is a failure."""

    def hung(*_: Any) -> None:
        raise HungError(f"more than {LIMIT} s of processor time, or {PATIENCE} s by the clock")

    timers = {signal.ITIMER_PROF: (signal.SIGPROF, LIMIT), signal.ITIMER_REAL: (signal.SIGALRM, PATIENCE)}
    before = {number: signal.signal(number, hung) for number, _ in timers.values()}
    for timer, (_, seconds) in timers.items():
        signal.setitimer(timer, seconds)
    try:
        work()
    except UserError as error:
        text = str(error)
        assert text.strip(), "an error without a message"
        assert len(text) < 20_000, f"a message of {len(text)} characters: {text[:200]}"
        text.encode("utf-8")
        return text
    finally:
        for timer, (number, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
    return None
