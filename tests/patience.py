"""Time limits that hold on a busy machine.

Other work makes everything late. So an event is waited for until PATIENCE is over, however soon it is due, and what
must be cheap is limited in processor time of this process, to which other processes do not add.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 60.0  # seconds; nothing that a test waits for takes as long on an idle machine


def eventually(happened: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Return True as soon as `happened()` is true, False if it is not by the end of this time."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() >= end:
            return bool(happened())
        time.sleep(0.01)
    return True


@contextmanager
def cheaply(seconds: float) -> Iterator[None]:
    """Fail if the block takes more processor time of this process than this, or PATIENCE by the clock."""
    clock, used = time.monotonic(), time.process_time()
    yield
    spent, waited = time.process_time() - used, time.monotonic() - clock
    assert spent < seconds, f"it took {spent:.1f} s of processor time, at most {seconds} s are allowed"
    assert waited < PATIENCE, f"it took {waited:.1f} s"
