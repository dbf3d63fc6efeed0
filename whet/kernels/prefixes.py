"""Prefixes of a packed row's segments, from the first token on.

A segment is (start, length, prefix_start, prefix_length). Its prefix is the first `prefix_length` rows of the segment
at `prefix_start` and, before them, whatever that segment has as prefix itself. No triton is needed here.
"""

from __future__ import annotations

import numpy as np


def parents_of(segments: np.ndarray) -> np.ndarray:
    """Return the index of the segment (S,) that each one's prefix is the beginning of; -1 where there is none."""
    (there,) = np.nonzero(segments[:, 1])
    if not len(there):
        return np.full(len(segments), -1)
    order = there[np.argsort(segments[there, 0], kind="stable")]
    at = np.minimum(np.searchsorted(segments[order, 0], segments[:, 2]), len(order) - 1)
    found = (segments[:, 3] > 0) & (segments[order[at], 0] == segments[:, 2])
    return np.where(found, order[at], -1)


def levels_of(parents: np.ndarray) -> np.ndarray:
    """Return how many segments (S,) stand before each one in its prefix, -1 for those whose prefixes form a circle."""
    levels = np.where(parents < 0, 0, -1)
    while True:
        above = np.where(parents < 0, -1, levels[parents])
        found = (levels < 0) & (above >= 0)
        if not found.any():
            return levels
        levels[found] = above[found] + 1


def depths_of(segments: np.ndarray, parents: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the number of rows (S,) in each segment's whole prefix."""
    depths = segments[:, 3].copy()
    for level in range(1, int(levels.max(initial=0)) + 1):
        here = np.flatnonzero((levels == level) & (parents >= 0))
        depths[here] += depths[parents[here]]
    return depths


def prefix_rows(segments: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each segment's whole prefix, the first token's first."""
    parents = parents_of(segments)
    levels = levels_of(parents)
    if (levels < 0).any():
        raise ValueError("the prefixes of a packed row's segments form a circle")
    found: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * len(segments)
    for i in np.argsort(levels, kind="stable").tolist():
        _, _, start, length = segments[i].tolist()
        if length:
            own = np.arange(start, start + length)
            before = found[parents[i]] if parents[i] >= 0 else own[:0]
            found[i] = np.concatenate([before, own]) if len(before) else own
    return found
