"""Progress of a whole run: time that is left, and a sparkline of the reward."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise

_BARS = "▁▂▃▄▅▆▇█"
_CURVE = ("reward/overall", "actor/loss")  # the first that a run logs is drawn
_MOST = 1024  # points kept; of a longer run neighbours are put together


class RunProgress:
    """What the steps logged so far say about the run. A resumed run is measured from its first step here."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.step = 0
        self._first: tuple[float, int] | None = None  # time and number of the first step that was logged
        self._seconds: float | None = None  # of a step, validations and checkpoints included
        self._values: list[float] = []
        self._width = 1  # steps to a value
        self._pending: list[float] = []

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take in a step that is done."""
        now, self.step = time.monotonic(), step
        if self._first is None:
            self._first, self._seconds = (now, step), metrics.get("timing_s/step")
        elif step > self._first[1]:
            self._seconds = (now - self._first[0]) / (step - self._first[1])
        value = next((metrics[name] for name in _CURVE if name in metrics), None)
        if value is not None and math.isfinite(value):
            self._add(value)

    def left(self, total: int) -> float | None:
        """Return the seconds until step `total`, as far as they are known."""
        if self._seconds is None or not math.isfinite(self._seconds) or self.step >= total:
            return None
        return self._seconds * (total - self.step)

    def sparkline(self, width: int) -> str:
        """Return the curve of the reward (or the loss) in so many characters, from its lowest to its highest."""
        values = self._values + ([sum(self._pending) / len(self._pending)] if self._pending else [])
        return sparkline(values, width)

    def _add(self, value: float) -> None:
        self._pending.append(value)
        if len(self._pending) == self._width:
            self._values.append(sum(self._pending) / self._width)
            self._pending = []
        if len(self._values) == _MOST:
            self._values = [(a + b) / 2 for a, b in zip(self._values[::2], self._values[1::2])]
            self._width *= 2


def sparkline(values: Sequence[float], width: int) -> str:
    """Return values as bars of eight heights; more values than characters are averaged in equal parts."""
    count = min(width, len(values))
    edges = [len(values) * i // count for i in range(count + 1)] if count else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    if len(means) < 2:
        return ""
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)


def duration(seconds: float) -> str:
    """Return seconds as a person says them: 4.2s, 3m 20s, 2h 5m, 3d 4h."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d {hours % 24}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s" if minutes else f"{seconds:.1f}s"
