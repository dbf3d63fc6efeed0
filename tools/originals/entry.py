"""One recorded result of an original, and how far ours is from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whet.errors import UserError

TOLERANCE = 3e-6
# what we compute for an entry, by the names it was recorded under; None where its name means nothing to us
Compute = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A name, the numbers recorded under it, and how to compute them; None for a name nobody knows."""

    name: str
    recorded: Any
    compute: Compute | None
    settings: frozenset[str] = frozenset()  # names in `recorded` that say how it was computed


@dataclass(frozen=True, slots=True)
class Result:
    """What came of an entry."""

    name: str
    worst: float  # largest absolute error
    note: str  # ok, or what is wrong
    passed: bool

    def line(self, width: int) -> str:
        """The entry as one line of the report."""
        error = "-" if math.isnan(self.worst) else f"{self.worst:.1e}"
        return f"{self.name:<{width}}  {error:>8}  {self.note}"


def check(entry: Entry) -> Result:
    """Recompute an entry and compare every number of it."""
    failure = original_error(entry.recorded)
    if failure is not None:
        return Result(entry.name, math.nan, f"the original raises: {failure}", passed=True)
    if entry.compute is None:
        return Result(entry.name, math.nan, "NOT COVERED", passed=False)
    try:
        computed = entry.compute()
    except UserError as error:
        return Result(entry.name, math.nan, f"NOT COVERED: {error}", passed=False)
    recorded = entry.recorded
    if isinstance(recorded, dict):
        recorded = {name: value for name, value in recorded.items() if name not in entry.settings}
    worst, where = 0.0, ""
    for path, theirs, ours in _pairs(recorded, computed, ""):
        if ours is _MISSING:
            return Result(entry.name, math.nan, f"NOT COVERED: {path}", passed=False)
        distance = _distance(theirs, ours)
        if distance > worst:
            worst, where = distance, path
    if worst > TOLERANCE:
        return Result(entry.name, worst, f"DIFFERS{f' in {where}' if where else ''}", passed=False)
    return Result(entry.name, worst, "ok", passed=True)


def original_error(recorded: Any) -> str | None:
    """What the original raised instead of giving numbers, in one line."""
    text = recorded.get("ERROR") if isinstance(recorded, dict) else recorded
    if not isinstance(text, str) or (text is recorded and not text.startswith("ERROR")):
        return None
    return " ".join(text.split())


_MISSING = object()


def _pairs(theirs: Any, ours: Any, path: str) -> list[tuple[str, Any, Any]]:
    """Every number or array recorded, with ours of the same name."""
    if not isinstance(theirs, dict):
        return [(path, theirs, ours)]
    found = []
    for name, value in theirs.items():
        below = ours.get(name, _MISSING) if isinstance(ours, dict) else _MISSING
        found += _pairs(value, below, f"{path}/{name}" if path else name)
    return found


def _distance(theirs: Any, ours: Any) -> float:
    """The largest absolute difference; infinite where one has no value or another shape."""
    if theirs is None or ours is None:
        return 0.0 if theirs is ours else math.inf
    a, b = _array(theirs), _array(ours)
    if a is None or b is None or a.shape != b.shape:
        return 0.0 if theirs == ours else math.inf
    if a.numel() == 0:
        return 0.0
    gap = torch.where(a == b, 0.0, (a - b).abs())
    both_nan = a.isnan() & b.isnan()
    return float(torch.where(both_nan, 0.0, gap.nan_to_num(nan=math.inf)).max())


def _array(values: Any) -> Tensor | None:
    """A tensor of numbers, or None where the rows are ragged or not numbers."""
    if isinstance(values, Tensor):
        return values.detach().double()
    try:
        return torch.tensor(values, dtype=torch.float64)
    except (TypeError, ValueError):
        return None
