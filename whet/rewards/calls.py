"""Calls of the reward function on their way through the pool: how they wait, how they ended, how many failed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.rewards.result import check_scores
from whet.rewards.wire import BAD, RESULTS, Reply, Result
from whet.types import Sample

FAILURES = ("raised", "timeout", "died", "bad result")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the function: the inputs it scores, and the seconds it may take."""

    seed: bytes
    inputs: list[dict[str, Any]]
    budget: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of a call: one result per input, or the way it failed."""

    results: list[Result] = field(default_factory=list)
    failure: str = ""  # "raised", "timeout", "died", "bad result"; empty when there are results
    detail: str = ""  # the traceback, or what happened
    cause: str = ""  # equal for failures that need to be reported only once


def outcome_of(reply: Reply) -> Outcome:
    """Return the end of a call by the worker's reply."""
    if reply.kind == RESULTS:
        return Outcome(
            [check_scores(result) or result if isinstance(result, dict) else result for result in reply.results]
        )
    if reply.kind == BAD:
        return Outcome(failure="bad result", detail=reply.text)
    return Outcome(failure="raised", detail=reply.text, cause=reply.cause)


Done = Callable[[int, Outcome | BaseException], None]  # a call's position, and how it ended


@dataclass(slots=True, eq=False)
class Task:
    """A call on its way through the pool."""

    call: Call
    position: int  # among the calls that came with it
    done: Done
    repeated: bool = False


class Backlog:
    """Calls that wait for a worker: those that any may have, and those that a fresh one must have."""

    def __init__(self) -> None:
        self._any: deque[Task] = deque()
        self._fresh: deque[Task] = deque()

    def __len__(self) -> int:
        return len(self._any) + len(self._fresh)

    @property
    def need_fresh(self) -> int:
        """Calls that only a fresh worker may have."""
        return len(self._fresh)

    def add(self, tasks: Iterable[Task]) -> None:
        """Let calls wait behind those that do."""
        self._any.extend(tasks)

    def take(self, fresh: bool) -> Task | None:
        """The next call for such a worker."""
        if fresh and self._fresh:
            return self._fresh.popleft()
        return self._any.popleft() if self._any else None

    def repeat(self, task: Task) -> bool:
        """Have a call made once more, by a fresh worker; False when that has been done already."""
        if task.repeated:
            return False
        task.repeated = True
        self._fresh.append(task)
        return True

    def drop(self, tasks: set[Task]) -> None:
        """Forget calls that nobody waits for any more."""
        self._any = deque(task for task in self._any if task not in tasks)
        self._fresh = deque(task for task in self._fresh if task not in tasks)


def is_infrastructure(outcome: Outcome) -> bool:
    """True for a failure that other samples of the same call would have too: there is no server to score them."""
    return outcome.cause.startswith("UnreachableError at ")


def failure_counts(samples: Sequence[Sample]) -> dict[str, float]:
    """Return how many of these samples have no score of their own, in all and by the way it failed."""
    counts = Counter(sample.failure for sample in samples if sample.failure in FAILURES)  # others are environments'
    return {
        "reward/failed": float(counts.total()),
        **{f"reward/{failure.replace(' ', '_')}": float(counts[failure]) for failure in FAILURES},
    }


def describe(outcome: Outcome, seconds: float) -> str:
    """Return what happened to a call that had so many seconds."""
    return {
        "raised": "raised an error",
        "timeout": f"did not finish within {seconds:g} s",
        "died": "ended its process",
        "bad result": "returned no usable score",
    }[outcome.failure]
