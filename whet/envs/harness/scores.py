"""Rewards that a harness returns, prints or posts: a number, a dict of scores, or nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.envs.observations import LARGEST, BadResultError, numbers_of

REWARDS = ("reward", "overall", "score")  # names of the reward among scores, the first that is there


@dataclass(frozen=True, slots=True)
class Scores:
    """The outcome of a harness."""

    reward: float | None = None  # None where the reward function says it
    info: dict[str, float] = field(default_factory=dict)  # other scores, for metrics
    end: str | None = None


def read_scores(value: Any) -> Scores:
    """Read an outcome; `BadResultError` for what is none."""
    if value is None:
        return Scores()
    if hasattr(type(value), "__float__"):
        value = {REWARDS[0]: value}
    if not isinstance(value, Mapping):
        raise BadResultError(f"expected a number, a dict of numbers or None, and it is a {type(value).__name__}")
    given = {str(name): number for name, number in value.items()}
    end = given.pop("end", None)
    numbers = numbers_of(given)
    named = next((name for name in REWARDS if name in given), None)
    if named is None and given:
        raise BadResultError(f"scores need a reward, by one of the names {', '.join(REWARDS)}")
    reward = 0.0 if named is None else numbers.pop(named, math.nan)
    if not abs(reward) <= LARGEST:
        raise BadResultError(f"{named} must be a number within ±{LARGEST:g}, not {given[str(named)]!r:.50}")
    return Scores(None if named is None else reward, numbers, None if end is None else str(end)[:100])


def printed_scores(text: str) -> Scores:
    """Read the last line of a program's output where it is a number, an object or null in JSON, else nothing."""
    lines = text.strip().splitlines()
    try:
        value = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        return Scores()
    if isinstance(value, (str, list, bool)):
        return Scores()
    return read_scores(value)
