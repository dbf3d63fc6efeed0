"""Memory of rules: steps in a row, and the level at which a run began."""

from __future__ import annotations

from collections import deque


class Streak:
    """Count the steps in a row for which something holds."""

    def __init__(self, needed: int) -> None:
        self.needed, self.steps = needed, 0

    def update(self, holds: bool) -> bool:
        """Take in a step; return True once it has held for as many steps as are needed."""
        self.steps = self.steps + 1 if holds else 0
        return self.steps >= self.needed


class Level:
    """Mean of a metric over the first `window` steps, and over the latest ones."""

    def __init__(self, window: int) -> None:
        self._window, self._count = window, 0
        self._first: list[float] = []
        self._latest: deque[float] = deque(maxlen=window)

    def add(self, value: float) -> None:
        """Take in a step's value."""
        if len(self._first) < self._window:
            self._first.append(value)
        self._latest.append(value)
        self._count += 1

    @property
    def first(self) -> float:
        """Mean over the first steps."""
        return sum(self._first) / len(self._first)

    @property
    def latest(self) -> float:
        """Mean over the latest steps."""
        return sum(self._latest) / len(self._latest)

    @property
    def is_known(self) -> bool:
        """True once the latest steps are none of the first ones."""
        return self._count >= 2 * self._window
