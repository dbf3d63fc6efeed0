"""`Finding` and `Rule`: a fault that was noticed, and the interface of what notices one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a run that a person should look at."""

    rule: str
    step: int
    sentence: str  # what was seen, with numbers, and what to look at


class Rule(Protocol):
    """A rule sees the metrics of every step once, in order, and returns a sentence while it holds."""

    name: str
    evidence: tuple[str, ...]  # metrics that the rule reads, those that say most first

    def observe(self, metrics: Metrics) -> str | None:
        """Take in a step; return what was found and what to do about it, or None."""
