"""Which rank computes which samples: about the same work for each, and the samples of a prompt together.

Shares are balanced by Karmarkar and Karp's differencing (1982). A prompt whose samples stay together is computed once;
parted over ranks, it is computed once on each. Samples of one prompt are parted only where shares would be uneven
otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, groupby

from whet.learn.packing import micro_batches
from whet.learn.ranks import Ranks
from whet.types import Sample

_WIDTH = 12 * 4096  # the products of a layer cost a token as much as attending to this many others, in a 7B model
_UNEVEN = 1.1  # how much heavier than the mean a share may be before samples of a prompt are parted for it


def assign(samples: Sequence[Sample], ranks: int, share_prefix: bool = True) -> list[list[int]]:
    """Indices of the samples that each rank computes, in order; with few samples some ranks have none."""
    if ranks == 1:
        return [list(range(len(samples)))]
    groups = [[i for i, _ in group] for _, group in groupby(enumerate(samples), key=lambda pair: id(pair[1].prompt))]
    size = max((len(group) for group in groups), default=1) if share_prefix else 1
    while True:
        pieces = [group[i : i + size] for group in groups for i in range(0, len(group), size)]
        costs = [_work([samples[i] for i in piece]) for piece in pieces]
        shares = _differenced(costs, ranks)
        heaviest = max(sum(costs[p] for p in share) for share in shares)
        if size == 1 or heaviest * ranks <= _UNEVEN * sum(costs):
            return [sorted(i for p in share for i in pieces[p]) for share in shares]
        size = -(-size // 2)


def _work(samples: Sequence[Sample]) -> int:
    """What packed samples of one prompt cost, forward: tokens times the width of products and what they attend to."""
    prompt = len(samples[0].prompt.ids)
    work = prompt * (_WIDTH + prompt // 2) if any(sample.ids for sample in samples) else 0
    return work + sum(len(s.ids) * (_WIDTH + prompt + len(s.ids) // 2) for s in samples)


def _differenced(costs: Sequence[int], parts: int) -> list[list[int]]:
    """Indices of costs in parts of about the same total.

    Begins with one partition for each cost, which all but one of its parts are empty of. The two with the largest
    spread between their parts become one, the heavy parts of each joined to the light parts of the other.
    """
    number = count()  # of equal spreads, the one made first
    heap: list[tuple[int, int, list[tuple[int, list[int]]]]] = []
    for i, cost in enumerate(costs):
        empty: list[tuple[int, list[int]]] = [(0, []) for _ in range(parts - 1)]
        heap.append((-cost, next(number), [(cost, [i]), *empty]))
    heapq.heapify(heap)
    while len(heap) > 1:
        one, other = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        joined = [(a + b, left + right) for (a, left), (b, right) in zip(one, reversed(other))]
        joined.sort(key=lambda each: -each[0])
        heapq.heappush(heap, (joined[-1][0] - joined[0][0], next(number), joined))
    return [members for _, members in heap[0][2]] if heap else [[] for _ in range(parts)]


@dataclass(frozen=True)
class Passes:
    """The micro-batches of this rank, as indices into the samples, and how often it idles while others compute.

    Sharded parameters are gathered by all ranks at once: one that has nothing left to do must still make its passes.
    """

    micros: list[list[int]]
    idle: int
    idle_rows: list[int]  # the shortest sample there is, which an idle pass runs on for nothing

    def all(self) -> Iterable[tuple[list[int], bool]]:
        """Rows of each pass, and whether it counts."""
        return [(rows, True) for rows in self.micros] + [(self.idle_rows, False)] * self.idle


def passes(
    ranks: Ranks, samples: Sequence[Sample], share_prefix: bool, max_tokens: int | None, max_samples: int
) -> Passes:
    """How this rank goes through its share of the samples."""
    mine = assign(samples, ranks.count, share_prefix)[ranks.index]
    cut = micro_batches([samples[i] for i in mine], share_prefix, max_tokens, max_samples)
    micros = [[mine[i] for i in rows] for rows in cut]
    idle = ranks.most(len(micros)) - len(micros)
    written = (i for i, sample in enumerate(samples) if sample.ids)
    shortest = min(written, key=lambda i: len(samples[i].prompt.ids) + len(samples[i].ids), default=None)
    return Passes(micros, idle, [] if shortest is None else [shortest])
