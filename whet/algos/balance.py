"""Splitting rows over devices or micro-batches so that each gets about the same amount of work.

Karmarkar and Karp's largest differencing method (1982): every row starts as a split of its own (one part holds it, the
others are empty); the two splits with the widest gap between their heaviest and lightest part are joined, heavy parts
with light ones, until one split is left.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.errors import UserError


def workload(length: int) -> int:
    """Estimate the cost of a sequence: terms for the weights and for attention, in the proportion of a 7B model."""
    return 24576 * length + length**2


def partitions(costs: Sequence[int], parts: int, equal_size: bool) -> list[list[int]]:
    """Indices of `costs` in `parts` lists of about the same total; with `equal_size` also of the same number.

    Each list is sorted; which list comes first carries no meaning.
    """
    if parts < 1 or len(costs) < parts:
        raise UserError(f"{len(costs)} rows cannot be split into {parts} parts")
    if equal_size and len(costs) % parts:
        raise UserError(f"{len(costs)} rows cannot be split into {parts} parts of equal size")
    ordered = sorted((cost, index) for index, cost in enumerate(costs))
    # Parts of equal size come from starting with splits that hold one row in each part.
    step = parts if equal_size else 1
    heap = [_Split.of(ordered[i : i + step], parts) for i in range(0, len(ordered), step)]
    heapq.heapify(heap)
    while len(heap) > 1:
        heapq.heappush(heap, heapq.heappop(heap).joined(heapq.heappop(heap)))
    return [sorted(index for index, _ in part.members) for part in heap[0].parts]


@dataclass(order=True, slots=True)
class _Part:
    total: int = 0
    size: int = 0
    members: list[tuple[int, int]] = field(default_factory=list)  # (index, cost)


@dataclass(slots=True)
class _Split:
    parts: list[_Part]  # heaviest first

    @classmethod
    def of(cls, rows: list[tuple[int, int]], parts: int) -> _Split:
        held = [_Part(cost, 1, [(index, cost)]) for cost, index in rows]
        return cls(sorted(held + [_Part() for _ in range(parts - len(held))], reverse=True))

    def joined(self, other: _Split) -> _Split:
        """The heaviest part of one with the lightest of the other, and so on."""
        pairs = zip(self.parts, reversed(other.parts))
        return _Split(
            sorted((_Part(a.total + b.total, a.size + b.size, a.members + b.members) for a, b in pairs), reverse=True)
        )

    def __lt__(self, other: _Split) -> bool:
        """The widest gap comes first out of a heap; of equal ones, the one with the heavier part."""
        gap, other_gap = (split.parts[0].total - split.parts[-1].total for split in (self, other))
        return gap > other_gap if gap != other_gap else self.parts[0] > other.parts[0]
