"""Run something on malformed input: it may succeed or raise a `UserError`, within five seconds."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from whet.errors import UserError

LIMIT = 5.0  # seconds


class HungError(BaseException):
    """Work that took too long; no `except Exception` on the way catches it."""


def message_of(work: Callable[[], Any]) -> str | None:
    """The message of the `UserError` that `work` raises, or None if it succeeds; anything else is a failure."""

    def hung(*_: Any) -> None:
        raise HungError(f"more than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        work()
    except UserError as error:
        text = str(error)
        assert text.strip(), "an error without a message"
        assert len(text) < 20_000, f"a message of {len(text)} characters: {text[:200]}"
        text.encode("utf-8")
        return text
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None
