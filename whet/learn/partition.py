"""Division of a batch: samples over ranks, then each rank's samples over micro-batches.

Ranks get about the same work, balanced by Karmarkar and Karp's differencing (1982). A prompt whose samples stay
together is computed once; split over ranks, it is computed once on each. The samples of a prompt are split only if
ranks would have uneven work otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, groupby

from whet.learn.packing import RowSize
from whet.learn.ranks import Ranks
from whet.types import Sample

_WIDTH = 12 * 4096  # the products of a layer cost a token as much as attending to this many others, in a 7B model
_UNEVEN = 1.1  # how much more than the mean a rank may have before the samples of a prompt are split


@dataclass(frozen=True, slots=True)
class Budget:
    """Sizes of micro-batches: at most this many tokens of a packed row."""

    tokens_update: int | None  # None: the config's number of samples instead
    tokens_experience: int | None  # in passes without gradient
    recompute: bool = True  # use gradient checkpointing, unless the config says otherwise
    recompute_mlp: bool = False  # instead of it, recompute gate and up of a fused decoder alone


def assign(samples: Sequence[Sample], ranks: int, share_prefix: bool = True) -> list[list[int]]:
    """Return the indices of the samples that each rank computes, in order; with few samples some ranks have none."""
    if ranks == 1:
        return [list(range(len(samples)))]
    # 1. Consecutive samples of the same prompt form a group; at first no group is split.
    groups = [[i for i, _ in group] for _, group in groupby(enumerate(samples), key=lambda pair: id(pair[1].prompt))]
    size = max((len(group) for group in groups), default=1) if share_prefix else 1
    while True:
        # 2. Cut groups into pieces of at most `size` samples, and divide the pieces by their cost.
        pieces = [group[i : i + size] for group in groups for i in range(0, len(group), size)]
        costs = [_work([samples[i] for i in piece]) for piece in pieces]
        shares = _differenced(costs, ranks)
        # 3. Halve the pieces until the largest share is close enough to the mean.
        heaviest = max(sum(costs[p] for p in share) for share in shares)
        if size == 1 or heaviest * ranks <= _UNEVEN * sum(costs):
            return [sorted(i for p in share for i in pieces[p]) for share in shares]
        size = -(-size // 2)


def _work(samples: Sequence[Sample]) -> int:
    """Return the forward cost of packed samples of one prompt: per token, its products and the tokens it attends to."""
    if any(len(sample.branches) > 1 for sample in samples):
        row = RowSize(share_prefix=True)
        tokens = max(row.add(sample) for sample in samples)
        return tokens * (_WIDTH + max(map(max, (sample.branches for sample in samples))) // 2)
    prompt = len(samples[0].prompt.ids)
    work = prompt * (_WIDTH + prompt // 2) if any(sample.ids for sample in samples) else 0
    return work + sum(len(s.ids) * (_WIDTH + prompt + len(s.ids) // 2) for s in samples)


def _differenced(costs: Sequence[int], parts: int) -> list[list[int]]:
    """Divide the indices of costs into parts of about the same total (largest differencing method)."""
    # 1. One partition per cost: the cost alone in the first part, the others empty. The heap is ordered by the
    #    difference between the largest and the smallest part, the largest difference first.
    number = count()  # breaks ties: of equal differences, the one made first
    heap: list[tuple[int, int, list[tuple[int, list[int]]]]] = []
    for i, cost in enumerate(costs):
        empty: list[tuple[int, list[int]]] = [(0, []) for _ in range(parts - 1)]
        heap.append((-cost, next(number), [(cost, [i]), *empty]))
    heapq.heapify(heap)
    # 2. Merge the two partitions with the largest differences: large parts of one with small parts of the other.
    while len(heap) > 1:
        one, other = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        joined = [(a + b, left + right) for (a, left), (b, right) in zip(one, reversed(other))]
        joined.sort(key=lambda each: -each[0])
        heapq.heappush(heap, (joined[-1][0] - joined[0][0], next(number), joined))
    # 3. The last partition holds all costs.
    return [members for _, members in heap[0][2]] if heap else [[] for _ in range(parts)]


def micro_batches(
    samples: Sequence[Sample], share_prefix: bool, max_tokens: int | None, max_samples: int
) -> list[list[int]]:
    """Cut samples into micro-batches; each is a list of indices into `samples`. Empty responses are left out.

    With `max_tokens` the packed row of each holds at most that many tokens (a single longer sample still gets its
    own), and they are as few and as even as that allows; without it each holds at most `max_samples` samples.
    """
    written = [i for i, sample in enumerate(samples) if sample.ids]
    if max_tokens is None:
        return [written[i : i + max_samples] for i in range(0, len(written), max_samples)]
    # 1. Units of samples that share a packed prompt, the largest first.
    units = sorted(_units(samples, written, share_prefix, max_tokens), key=lambda unit: -unit[0])
    # 2. Try the least number of micro-batches that could hold all tokens, then one more at a time until all fit.
    fewest = max(1, -(-sum(size for size, _ in units) // max_tokens))
    for number in range(fewest, len(units) + 1):
        bins = _balance(units, number)
        if all(size <= max_tokens or len(members) == 1 for size, members in bins):
            return [members for _, members in bins if members]
    return [members for _, members in units]


def _balance(units: list[tuple[int, list[int]]], number: int) -> list[tuple[int, list[int]]]:
    """Put units, the largest first, each into the smallest of so many micro-batches."""
    bins: list[tuple[int, list[int]]] = [(0, []) for _ in range(number)]
    for size, members in units:
        i = min(range(number), key=lambda i: bins[i][0])
        bins[i] = (bins[i][0] + size, bins[i][1] + members)
    return bins


def _units(
    samples: Sequence[Sample], written: list[int], share_prefix: bool, max_tokens: int
) -> Iterable[tuple[int, list[int]]]:
    """Yield packed size and indices of samples that stay together: a prompt's, cut where they exceed the budget."""
    size, members, row = 0, list[int](), RowSize(share_prefix)
    for i in written:
        joins = bool(members) and share_prefix and samples[i].prompt is samples[members[-1]].prompt
        joined = row.add(samples[i]) if joins else 0
        if joins and joined <= max_tokens:
            size = joined
            members.append(i)
            continue
        if members:
            yield size, members
        row = RowSize(share_prefix)
        size, members = row.add(samples[i]), [i]
    if members:
        yield size, members


@dataclass(frozen=True)
class Passes:
    """The micro-batches of this rank, as indices into the samples, and its idle passes.

    All ranks gather sharded parameters at once: a rank with fewer micro-batches makes passes whose results are dropped.
    """

    micros: list[list[int]]
    idle: int  # number of idle passes
    idle_rows: list[int]  # the shortest sample, which idle passes run on

    def all(self) -> list[tuple[list[int], bool]]:
        """Return the rows of each pass, and whether its result counts."""
        return [(rows, True) for rows in self.micros] + [(self.idle_rows, False)] * self.idle


def passes(
    ranks: Ranks, samples: Sequence[Sample], share_prefix: bool, max_tokens: int | None, max_samples: int
) -> Passes:
    """Cut this rank's share of the samples into micro-batches; every rank must call it."""
    # 1. This rank's samples, and its micro-batches as indices into all samples.
    mine = assign(samples, ranks.count, share_prefix)[ranks.index]
    cut = micro_batches([samples[i] for i in mine], share_prefix, max_tokens, max_samples)
    micros = [[mine[i] for i in rows] for rows in cut]
    # 2. As many idle passes as the busiest rank has micro-batches more.
    idle = ranks.maximum(len(micros)) - len(micros)
    written = (i for i, sample in enumerate(samples) if sample.ids)
    shortest = min(written, key=lambda i: len(samples[i].prompt.ids) + len(samples[i].ids), default=None)
    return Passes(micros, idle, [] if shortest is None else [shortest])
