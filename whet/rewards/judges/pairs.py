"""Which responses of a group are compared with each other."""

from __future__ import annotations

from itertools import combinations


def pairs_of(size: int, opponents: int | None) -> list[tuple[int, int]]:
    """Return pairs of 0..size-1, each once: all of them, or so that each has as many opponents as asked for.

    The pairs are those of a ring in which each response meets its nearest neighbours. Where the number of opponents is
    odd and so is the size, which no regular set of pairs can have, each has one more.
    """
    if opponents is None or opponents >= size - 1:
        return list(combinations(range(size), 2))
    distances = list(range(1, opponents // 2 + 1))
    if opponents % 2:
        distances.append(size // 2 if size % 2 == 0 else opponents // 2 + 1)
    found = {tuple(sorted((i, (i + distance) % size))) for distance in distances for i in range(size)}
    return sorted((first, second) for first, second in found)
