"""Progress of a job: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from whet.tracking.console import Console

SECONDS = 30.0  # between two lines


@contextmanager
def progress(console: Console, name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield the function that is told how many samples were finished."""
    done, said = 0, time.monotonic()
    with console.stage(name, total) as advance:

        def finished(count: int) -> None:
            nonlocal done, said
            done += count
            advance(count)
            if not console.live and time.monotonic() - said > SECONDS:
                said = time.monotonic()
                console.note(f"{name}: {done} of {total} samples")

        yield finished
