"""Failures of reward functions: their number as metrics, and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from whet.rewards.calls import Outcome
from whet.types import Sample

FAILURES = ("raised", "timeout", "died", "bad result")


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
