"""Metrics of runs, read again when their file has changed."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.tracking.run_folder import read_metrics

Rows = Sequence[Mapping[str, Any]]

_KEPT_FILES = 64
_SPARK_POINTS = 60
_SPARK = ("reward/overall", "val/reward", "actor/loss", "val/loss")
_LATEST = ("reward/overall", "reward/accuracy", "val/reward", "val/accuracy", "actor/loss", "response_length/mean")


class MetricsFiles:
    """The metrics of run folders, those used last kept in memory. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[tuple[int, int], Rows]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, folder: Path) -> Rows:
        """Return a run's metrics by step; none if it has not logged any."""
        file = folder / "metrics.jsonl"
        try:
            found = file.stat()
            state = (found.st_mtime_ns, found.st_size)
            with self._lock:
                known = self._kept.get(file)
                if known is not None and known[0] == state:
                    self._kept.move_to_end(file)
                    return known[1]
            rows = read_metrics(file)
        except OSError:
            return []
        with self._lock:
            self._kept[file] = (state, rows)
            while len(self._kept) > _KEPT_FILES:
                self._kept.popitem(last=False)
        return rows


def names(rows: Rows) -> list[str]:
    """Return the names of all metrics, in the order in which they were first logged."""
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name != "step"]


def curves(rows: Rows, wanted: Sequence[str]) -> dict[str, Any]:
    """Return steps, seconds and tokens so far, and the values of some metrics; None where a step has none.

    Seconds and tokens are sums over the steps that were logged, without pauses between starts of the run.
    """
    seconds, tokens = 0.0, 0.0
    x: dict[str, list[float]] = {"step": [], "seconds": [], "tokens": []}
    for row in rows:
        seconds += number(row.get("timing_s/step")) or 0.0
        tokens += number(row.get("perf/total_tokens")) or 0.0
        x["step"].append(row["step"])
        x["seconds"].append(seconds)
        x["tokens"].append(tokens)
    return {"x": x, "y": {name: [number(row.get(name)) for row in rows] for name in wanted}}


def sparkline(rows: Rows) -> dict[str, Any]:
    """Return the name and at most 60 points of the metric that says most about a run."""
    name = next((each for each in _SPARK if any(number(row.get(each)) is not None for row in rows)), None)
    if name is None:
        return {"metric": None, "points": []}
    points = [[row["step"], value] for row in rows if (value := number(row.get(name))) is not None]
    stride = max(1, math.ceil(len(points) / _SPARK_POINTS))
    return {"metric": name, "points": points[::-stride][::-1]}


def latest(rows: Rows) -> dict[str, float]:
    """Return the last value of the metrics that people look at first."""
    found: dict[str, float] = {}
    for row in rows:
        found |= {name: value for name in _LATEST if (value := number(row.get(name))) is not None}
    return found


def number(value: Any) -> float | None:
    """Return a finite number; None for anything else, as JSON has no others."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
