"""Tables of a packed row's segments that the attention kernels read.

A segment is a run of tokens that see each other causally and, before them, all tokens of a prefix: another segment of
the row. A tile of queries walks along its stream of keys: prefix, then own segment, in the order of their positions. A
tile of keys walks along its stream of queries: own segment from the tile on, then every segment that has it as prefix.
Both kinds of tile are sorted longest first, so that the last ones to finish are short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class KeyTiles:
    """Work items of the gradient of keys and values, and the sums of what long tiles leave in pieces."""

    # (items, 8): first row, rows, index of the first row in its segment, own queries, row of the first query of the
    # children minus own queries, begin and end of the item in the stream of queries, slot of the partial sum or -1
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
        self._start, self._length, prefix_start, self._prefix_length = table.T
        self._prefix_start = np.where(self._prefix_length > 0, prefix_start, 0)
        self.tokens = int(self._length.sum())
        self.past = past
        self.device = torch.device(device)
        _check_tiling(self._start, self._length, self.tokens)
        self._child_start, self._child_tokens = self._find_children()
        self._query_tiles: dict[int, Tensor] = {}
        self._key_tiles: dict[tuple[int, int, int], KeyTiles] = {}

    def _find_children(self) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each segment, the first row and the number of rows that have it as prefix."""
        end = self._prefix_start + self._prefix_length
        in_past = (self._prefix_start >= self.tokens) & (end <= self.tokens + self.past)
        child = np.flatnonzero((self._prefix_length > 0) & ~in_past)
        parent = np.searchsorted(self._start, self._prefix_start[child])
        known = parent < len(self._start)
        known[known] &= self._start[parent[known]] == self._prefix_start[child[known]]
        known[known] &= self._length[parent[known]] == self._prefix_length[child[known]]
        if not known.all() or (parent == child).any():
            raise ValueError("a prefix must be a segment of the packed row, from its first token to its last")
        first = np.full(len(self._start), self.tokens)
        end = np.zeros(len(self._start), dtype=np.int64)
        tokens = np.zeros(len(self._start), dtype=np.int64)
        np.minimum.at(first, parent, self._start[child])
        np.maximum.at(end, parent, self._start[child] + self._length[child])
        np.add.at(tokens, parent, self._length[child])
        if (tokens[parent] != (end - first)[parent]).any():
            raise ValueError("the segments that share a prefix must lie next to each other in the packed row")
        return np.where(tokens > 0, first, 0), tokens

    @cached_property
    def positions(self) -> Tensor:
        """(N,): position of each token in its own stream, prefix and then segment."""
        within = np.arange(self.tokens) - np.repeat(self._start, self._length)
        return self._upload(within + np.repeat(self._prefix_length, self._length))

    def query_tiles(self, block: int) -> Tensor:
        """(tiles, 8): first row, rows, position of the first, prefix start, prefix length, own start minus that."""
        if block not in self._query_tiles:
            segment, index = self._cut(block)
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
            segment, index = self._cut(block)
            row = self._start[segment] + index
            rows = np.minimum(block, self._length[segment] - index)
            own = self._length[segment] - index
            stream = own + self._child_tokens[segment]
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
            columns = (row[tile], rows[tile], index[tile], own[tile], child_offset, begin, end, slot)
            items = np.stack(columns, axis=1)[np.argsort(begin - end, kind="stable")]
            sums = np.stack((row, rows, first_slot, pieces), axis=1)[in_pieces]
            both = self._upload(np.concatenate((items.ravel(), sums.ravel())))
            self._key_tiles[choice] = KeyTiles(
                both[: items.size].view(-1, 8), both[items.size :].view(-1, 4), int(pieces[in_pieces].sum())
            )
        return self._key_tiles[choice]

    def _cut(self, block: int) -> tuple[np.ndarray, np.ndarray]:
        """Segments in tiles of `block` tokens: the segment of each tile, and the index in it of the tile's first."""
        tiles = -(-self._length // block)
        return np.repeat(np.arange(len(tiles)), tiles), _count_up(tiles) * block

    def _upload(self, table: np.ndarray) -> Tensor:
        host = torch.from_numpy(table.astype(np.int32))
        if self.device.type != "cuda":
            return host
        # Pinned: a copy from pageable memory would wait for all work queued on the device.
        return host.pin_memory().to(self.device, non_blocking=True)


def _count_up(counts: np.ndarray) -> np.ndarray:
    """0, 1, … count - 1 for each count, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _check_tiling(start: np.ndarray, length: np.ndarray, tokens: int) -> None:
    if tokens >= 2**31:
        raise ValueError("a packed row holds fewer than 2^31 tokens")
    if (length < 0).any() or (start != np.cumsum(length) - length).any():
        raise ValueError("segments must cover the packed row from its first token on, without gaps or overlaps")
