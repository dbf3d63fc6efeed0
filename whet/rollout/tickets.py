"""Records of a collector: the prompts handed in, where each of them stands, and how the time was spent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from whet.types import Group, Prompt, Sample

Rollout = Callable[[Prompt, range], Awaitable[list[Sample]]]  # the samples of these ids, of one prompt
Score = Callable[[list[Sample]], Awaitable[object]]  # fills `scores` of samples
Choose = Callable[[list[int]], list[int] | None]  # of the numbers that are ready, those to take; None to wait
Progress = Callable[[int], None]  # called with the number of samples that just got done


@dataclass(frozen=True, slots=True)
class Ticket:
    """A prompt that was handed in."""

    number: int  # counts what was handed in
    row: int  # of the data
    prompt: Prompt
    ids: range  # of its samples; the first also names the group


@dataclass(slots=True, eq=False)
class Entry:
    """A ticket on its way: waiting (no task), being sampled (a task), being scored (a group too), ready (scored)."""

    ticket: Ticket
    batch: Submission
    task: asyncio.Task[None] | None = None
    group: Group | None = None
    scored: bool = False


@dataclass(slots=True, eq=False)
class Submission:
    """Entries that one `submit` handed in."""

    entries: list[Entry]
    scored: asyncio.Future[None] | None = None  # of functions that score the whole batch


class Busy:
    """Seconds in which at least one group was being sampled, and in which at least one was being scored.

    Whoever calls holds a lock.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._since = clock, clock()
        self._counts = [0, 0]
        self._seconds = [0.0, 0.0]

    def change(self, sampling: int = 0, scoring: int = 0) -> None:
        """Add to the numbers of groups that are being sampled and scored."""
        self.seconds()
        self._counts = [self._counts[0] + sampling, self._counts[1] + scoring]

    def seconds(self) -> tuple[float, float]:
        """Return the seconds of sampling and of scoring so far."""
        now = self._clock()
        passed, self._since = now - self._since, now
        for place, count in enumerate(self._counts):
            self._seconds[place] += passed if count else 0.0
        return self._seconds[0], self._seconds[1]
