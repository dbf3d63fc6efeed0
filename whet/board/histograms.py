"""Histograms of a step's samples, by bins that the page turns into filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

from whet.board.sample_files import SampleFile

_BINS = 20
_COLUMNS = ("length", "reward", "advantage")


def histograms(file: SampleFile) -> dict[str, Any]:
    """Return edges and counts of lengths, rewards and advantages; a value lies in [edge, next edge], the last included.

    Few different values get a bin each, so that rewards of 0 and 1 are two bars; lengths that are far apart do not.
    """
    names = [name for name in _COLUMNS if name in file.columns]
    table = pq.read_table(file.path, columns=names, partitioning=None)
    found = {}
    for name in names:
        values = [float(v) for v in table[name].to_pylist() if v is not None and math.isfinite(v)]
        if values:
            found[name] = _bins(values, whole=name == "length")
    return found


def _bins(values: Sequence[float], whole: bool) -> list[dict[str, float]]:
    low, high = min(values), max(values)
    alike: dict[float, list[float]] = {}  # by what is shown of them; advantages differ by rounding
    for value in values:
        alike.setdefault(float(f"{value:.3g}"), []).append(value)
    if len(alike) <= _BINS and not (whole and high - low >= _BINS):
        return [{"low": min(each), "high": max(each), "count": len(each)} for _, each in sorted(alike.items())]
    width = (high - low) / _BINS
    if whole:
        width = max(1.0, math.ceil((high - low + 1) / _BINS))
    counts = [0] * _BINS
    for value in values:
        counts[min(_BINS - 1, int((value - low) / width))] += 1
    edges = [low + i * width for i in range(_BINS)]
    # The end of a bin is just below the next one's beginning: a filter takes both ends.
    ends = [edge + width - 1 if whole else math.nextafter(edge + width, -math.inf) for edge in edges]
    ends[-1] = max(ends[-1], high)
    return [{"low": e, "high": h, "count": c} for e, h, c in zip(edges, ends, counts) if c]
