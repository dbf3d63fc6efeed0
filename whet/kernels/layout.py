"""Tables of a packed row's segments that the attention kernels read.

A segment is a run of tokens that see each other causally and, before them, all tokens of a prefix: the beginning of
another segment of the row, and what that one has as prefix itself (`prefixes.py`). A tile of queries walks along its
stream of keys: prefix, then own segment, in the order of their positions. A tile of keys walks along its stream of
queries: own segment from the tile on, then every segment that has it in its prefix. No tile of keys goes past a token
at which another segment begins to branch off: all of it is in a prefix, or none. Both kinds of tile are sorted longest
first, so that the last ones to finish are short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from whet.kernels.prefixes import depths_of, levels_of, parents_of, prefix_rows
from whet.kernels.upload import upload


@dataclass(frozen=True, slots=True)
class KeyTiles:
    """Work items of the gradient of keys and values, and the sums of what long tiles leave in pieces."""

    # (items, 9): first row, rows, position of the first row, own queries, row of the first query of the children minus
    # own queries, begin and end of the item in the stream of queries, slot of the partial sum or -1, own queries up to
    # the first child
    items: Tensor
    sums: Tensor  # (tiles in pieces, 4): first row, rows, first slot, slots
    slots: int


class Layout:
    """The segments of one packed row of tokens; (start, length, prefix_start, prefix_length) each.

    `past` rows of keys and values may lie behind the row: tokens that were computed before. A prefix that starts there
    is any stretch of them. Such a layout has no gradient.
    """

    def __init__(
        self,
        segments: Sequence[tuple[int, int, int, int]] | np.ndarray,
        device: torch.device | str,
        past: int = 0,
    ) -> None:
        table = np.asarray(segments, dtype=np.int64).reshape(-1, 4)
        table = table[table[:, 1] != 0]
        table = table[np.argsort(table[:, 0], kind="stable")]
        self._start, self._length = table[:, 0], table[:, 1]
        self.tokens = int(self._length.sum())
        self.past = past
        self.device = torch.device(device)
        _check_tiling(self._start, self._length, self.tokens)
        parent, level = self._prefixes(table)
        self._prefix_start, self._prefix_length = np.where(table[:, 3] > 0, table[:, 2], 0), table[:, 3]
        # Rows of all prefixes one behind the other, if some lie in several segments; `_prefix_start` is a place there.
        self.chain: Tensor | None = None
        if ((parent >= 0) & (table[parent, 3] > 0)).any():
            self._prefix_length = depths_of(table, parent, level)
            self._prefix_start = self._prefix_length.cumsum() - self._prefix_length
            self.chain = self._upload(np.concatenate(prefix_rows(table)))
        self._nodes, self._child_start = self._find_children(parent, level, table[:, 3])
        self._query_tiles: dict[int, Tensor] = {}
        self._key_tiles: dict[tuple[int, int, int], KeyTiles] = {}

    def _prefixes(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the segment (S,) that each one's prefix begins, or -1, and the number of segments in the prefix."""
        _, _, start, length = table.T
        parent = parents_of(table)
        in_past = (start >= self.tokens) & (start + length <= self.tokens + self.past)
        known = (length == 0) | in_past | ((parent >= 0) & (length <= self._length[parent]))
        level = levels_of(parent)
        if not known.all() or (level < 0).any():
            raise ValueError("a prefix must be the beginning of a segment of the packed row, and not of its own")
        return parent, level

    def _find_children(
        self, parent: np.ndarray, level: np.ndarray, cut: np.ndarray
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Cut segments into nodes where others branch off behind `cut` tokens of them.

        Returns, of each node, its segment, begin and end in it, and the number of rows in other segments that see it;
        and for each segment the first of those rows, which lie next to each other for every node.
        """
        # 1. First and last row and number of rows of every segment with all that has it as prefix, deepest first.
        first, end, rows = self._start.copy(), self._start + self._length, self._length.copy()
        for depth in range(int(level.max(initial=0)), 0, -1):
            here = np.flatnonzero((level == depth) & (parent >= 0))
            np.minimum.at(first, parent[here], first[here])
            np.maximum.at(end, parent[here], end[here])
            np.add.at(rows, parent[here], rows[here])
        # 2. The children of a segment lie next to each other, those that branch off last first.
        child = np.flatnonzero(parent >= 0)
        child = child[np.lexsort((first[child], parent[child]))]
        of = parent[child]
        follows = of[1:] == of[:-1]
        apart = (first[child[1:]] != end[child[:-1]]) | (cut[child[1:]] > cut[child[:-1]])
        if (rows[child] != end[child] - first[child]).any() or (follows & apart).any():
            raise ValueError("the segments that share a prefix must lie next to each other in the packed row")
        begins = np.zeros(len(parent), dtype=np.int64)
        begins[of[::-1]] = first[child[::-1]]  # of each segment's children the first
        # 3. Nodes end where children branch off, and at the ends of segments.
        width = int(self._length.max(initial=0)) + 1
        ends = np.unique(np.concatenate([of * width + cut[child], np.arange(len(parent)) * width + self._length]))
        segment, stop = ends // width, ends % width
        begin = np.where(np.diff(segment, prepend=-1) == 0, np.concatenate([[0], stop[:-1]])[: len(stop)], 0)
        # 4. A node is seen by the children that branch off at its end or later.
        order = np.argsort(of * width + cut[child], kind="stable")
        sums = np.concatenate([[0], rows[child[order]].cumsum()])
        key = (of * width + cut[child])[order]
        seen = sums[np.searchsorted(key, (segment + 1) * width)] - sums[np.searchsorted(key, ends)]
        return (segment, begin, stop, seen), begins

    @cached_property
    def positions(self) -> Tensor:
        """(N,): position of each token in its own stream, prefix and then segment."""
        within = np.arange(self.tokens) - np.repeat(self._start, self._length)
        return self._upload(within + np.repeat(self._prefix_length, self._length))

    def query_tiles(self, block: int) -> Tensor:
        """(tiles, 8): first row, rows, position of the first, prefix start, prefix length, own start minus that."""
        if block not in self._query_tiles:
            segment, index = _cut(self._length, block)
            start, length, prefix_length = self._start[segment], self._length[segment], self._prefix_length[segment]
            rows = np.minimum(block, length - index)
            position = prefix_length + index
            nothing = np.zeros_like(rows)
            columns = (
                *(start + index, rows, position, self._prefix_start[segment], prefix_length, start - prefix_length),
                *(nothing, nothing),
            )
            longest_first = np.argsort(-(position + rows), kind="stable")
            self._query_tiles[block] = self._upload(np.stack(columns, axis=1)[longest_first])
        return self._query_tiles[block]

    def key_tiles(self, block: int, query_block: int, longest: int) -> KeyTiles:
        """Key tiles as items of at most `longest` queries, a multiple of `query_block`; see `KeyTiles`."""
        if self.past:
            raise ValueError("keys of the past have no gradient")
        choice = (block, query_block, longest)
        if choice not in self._key_tiles:
            segments, begins, stops, seen = self._nodes
            node, index = _cut(stops - begins, block)
            segment, index = segments[node], index + begins[node]
            row = self._start[segment] + index
            rows = np.minimum(block, stops[node] - index)
            own = self._length[segment] - index
            stream = own + seen[node]
            pieces = -(-stream // longest)
            # Pieces of a tile are as even as whole query blocks allow.
            size = -(-stream // (pieces * query_block)) * query_block
            pieces = -(-stream // size)
            tile = np.repeat(np.arange(len(row)), pieces)
            begin = _count_up(pieces) * size[tile]
            end = np.minimum(begin + size[tile], stream[tile])
            in_pieces = pieces > 1
            first_slot = np.cumsum(np.where(in_pieces, pieces, 0)) - np.where(in_pieces, pieces, 0)
            slot = np.where(in_pieces[tile], first_slot[tile] + _count_up(pieces), -1)
            child_offset = (self._child_start[segment] - own)[tile]
            position, until = (self._prefix_length[segment] + index)[tile], (stops[node] - index)[tile]
            columns = (row[tile], rows[tile], position, own[tile], child_offset, begin, end, slot, until)
            items = np.stack(columns, axis=1)[np.argsort(begin - end, kind="stable")]
            sums = np.stack((row, rows, first_slot, pieces), axis=1)[in_pieces]
            both = self._upload(np.concatenate((items.ravel(), sums.ravel())))
            self._key_tiles[choice] = KeyTiles(
                both[: items.size].view(-1, 9), both[items.size :].view(-1, 4), int(pieces[in_pieces].sum())
            )
        return self._key_tiles[choice]

    def _upload(self, table: np.ndarray) -> Tensor:
        return upload(table.astype(np.int32), self.device)


def _cut(lengths: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut runs into tiles of `block` tokens: the run of each tile, and the index in it of the tile's first."""
    tiles = -(-lengths // block)
    return np.repeat(np.arange(len(tiles)), tiles), _count_up(tiles) * block


def _count_up(counts: np.ndarray) -> np.ndarray:
    """0, 1, … count - 1 for each count, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _check_tiling(start: np.ndarray, length: np.ndarray, tokens: int) -> None:
    if tokens >= 2**31:
        raise ValueError("a packed row holds fewer than 2^31 tokens")
    if (length < 0).any() or (start != np.cumsum(length) - length).any():
        raise ValueError("segments must cover the packed row from its first token on, without gaps or overlaps")
