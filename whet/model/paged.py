"""Attention over a paged key-value cache: how prompts get into it, and how one token a sequence reads it.

The cache is one tensor (layers, 2, pages, kv heads, page, head dim). A slot number is page · page size + row; a block
table row lists the pages of one sequence in order. Several sequences may list the same page: that of their prompt.
"""

from __future__ import annotations

from torch import Tensor

from whet.kernels.paged_attention import paged_attention
from whet.model.attention import Attention


class PagedAttention:
    """Token i of the row goes to `slots_B[i]` of the cache; its query sees the first `lengths_B[i]` of its pages."""

    def __init__(self, cache: Tensor, block_table: Tensor, slots_B: Tensor, lengths_B: Tensor, splits: int) -> None:
        self._cache, self._block_table, self._splits = cache, block_table, splits
        self.slots_B, self._lengths_B = slots_B, lengths_B

    def pages(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, (pages, kv heads, page, head dim) each."""
        return self._cache[layer, 0], self._cache[layer, 1]

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Write down keys and values, then attend; (B, H, D)."""
        _write(self._cache[layer], self.slots_B, key_HND, value_HND)
        return self.read(layer, query_HND.transpose(0, 1), scale, window)

    def read(self, layer: int, query_BHD: Tensor, scale: float, window: int | None) -> Tensor:
        """Attend to keys and values that are in the cache already; (B, H, D)."""
        keys, values = self.pages(layer)
        return paged_attention(
            query_BHD, keys, values, self._block_table, None, self._lengths_B, scale, window, self._splits
        )


class RememberingAttention:
    """Another attention whose keys and values go to the cache as they pass: a packed prefill."""

    def __init__(self, packed: Attention, cache: Tensor, slots_N: Tensor) -> None:
        self._packed, self._cache, self._slots_N = packed, cache, slots_N

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Attention of every packed token; (N, H, D)."""
        _write(self._cache[layer], self._slots_N, key_HND, value_HND)
        return self._packed.attend(layer, query_HND, key_HND, value_HND, scale, window)


def _write(layer: Tensor, slots_N: Tensor, key_HND: Tensor, value_HND: Tensor) -> None:
    page = layer.shape[3]
    where = (slots_N // page, slots_N % page)
    for pages, rows_HND in zip(layer, (key_HND, value_HND)):
        pages.transpose(1, 2).index_put_(where, rows_HND.transpose(0, 1))
