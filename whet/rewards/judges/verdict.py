"""From the judge's text to a verdict: a number between two bounds, or which of two responses is better."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from dataclasses import dataclass
from typing import Any

MOST_CHARACTERS = 100_000  # of a judge's text that are looked at, from its end
MOST_OBJECTS = 1000  # beginnings of JSON objects that are tried
SCORE = r"(?i)\bscore\b\W{0,10}?(-?\d+(?:\.\d+)?)"
BETTER = r"(?i)\bverdict\b\W{0,10}?(A|B|tie)\b"
_WINS = {"a": 1.0, "b": 0.0, "tie": 0.5}


@dataclass(frozen=True)
class Verdicts:
    """Reads verdicts: by the last match of a pattern, or in a field of the last JSON object that has it."""

    pattern: re.Pattern[str] | None
    json_field: str | None = None
    low: float = 0.0
    high: float = 10.0

    def number(self, text: str) -> float | None:
        """Return the verdict scaled to 0..1; None if there is none, or one that is not between the bounds."""
        found = self._find(text)
        try:
            value = float(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else math.nan
        except (ValueError, OverflowError):
            return None
        if not min(self.low, self.high) <= value <= max(self.low, self.high):
            return None
        return (value - self.low) / (self.high - self.low)

    def winner(self, text: str) -> float | None:
        """Return 1 if response A is better, 0 if B is, 0.5 for a tie; None if there is no verdict."""
        found = self._find(text)
        return _WINS.get(found.strip().strip("[]().*\"'").lower()) if isinstance(found, str) else None

    def _find(self, text: str) -> Any:
        text = text[-MOST_CHARACTERS:]
        if self.json_field is not None:
            return _last_field(text, self.json_field)
        assert self.pattern is not None
        matches = deque(self.pattern.finditer(text), maxlen=1)
        if not matches:
            return None
        return matches[0][1] if self.pattern.groups else matches[0][0]


def _last_field(text: str, name: str) -> Any:
    """Return a field of the last JSON object in a text that has it, or None."""
    decoder, place = json.JSONDecoder(), len(text)
    for _ in range(MOST_OBJECTS):
        place = text.rfind("{", 0, place)
        if place < 0:
            return None
        try:
            found, _ = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and name in found:
            return found[name]
    return None
