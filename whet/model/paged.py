"""Attention over a paged key-value cache: prompts and chunks of them written to it, one token a sequence reading it.

The cache is one tensor (layers, 2, pages, kv heads, page, head dim). A slot number is page · page size + row; a block
table row lists the pages of one sequence in order. Several sequences may list the same page: that of their prompt.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whet.kernels.layout import Layout
from whet.kernels.packed_attention import packed_attention_forward
from whet.kernels.paged_attention import paged_attention
from whet.kernels.paged_attention_tiles import UNCUT, Shares
from whet.kernels.upload import upload
from whet.model.attention import Attention
from whet.model.exact import in_exact_mode

NARROW, LARGEST = torch.float8_e4m3fn, 448.0  # of a cache in 8 bits: values as they are, cut at its largest number


class PagedAttention:
    """Token i of the row goes to `slots_B[i]` of the cache; its query sees the first `lengths_B[i]` of its pages."""

    def __init__(
        self, cache: Tensor, block_table: Tensor, slots_B: Tensor, lengths_B: Tensor, shares: Shares = UNCUT
    ) -> None:
        self._cache, self._block_table, self._shares = cache, block_table, shares
        self.slots_B, self._lengths_B = slots_B, lengths_B

    def pages(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, (pages, kv heads, page, head dim) each."""
        return self._cache[layer, 0], self._cache[layer, 1]

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Write down keys and values, then attend; (B, H, D)."""
        _write(self._cache[layer], _where(self._cache, self.slots_B), key_HND, value_HND)
        return self.read(layer, query_HND.transpose(0, 1), scale, window)

    def read(self, layer: int, query_BHD: Tensor, scale: float, window: int | None) -> Tensor:
        """Attend to keys and values that are in the cache already; (B, H, D)."""
        keys, values = self.pages(layer)
        return paged_attention(
            query_BHD, keys, values, self._block_table, None, self._lengths_B, scale, window, self._shares
        )


class RememberingAttention:
    """Another attention whose keys and values go to the cache as they pass: a packed prefill."""

    def __init__(self, packed: Attention, cache: Tensor, slots_N: Tensor) -> None:
        self._packed, self._cache, self._where = packed, cache, _where(cache, slots_N)

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Attention of every packed token; (N, H, D)."""
        _write(self._cache[layer], self._where, key_HND, value_HND)
        return self._packed.attend(layer, query_HND, key_HND, value_HND, scale, window)


class ExtendingAttention:
    """Packed attention of new tokens, each chunk of them behind earlier tokens that are in the cache already."""

    def __init__(self, cache: Tensor, table_CW: np.ndarray, first_C: np.ndarray, length_C: np.ndarray) -> None:
        """Chunk c is length_C[c] tokens from first_C[c] on of the sequence whose pages row c of the table lists.

        The new tokens N of the pass are the chunks one after the other.
        """
        self._cache, page = cache, cache.shape[4]
        tokens, past = int(length_C.sum()), int(first_C.sum())
        # 1. Chunk and position of every new token (N,), and of every earlier one (M,).
        chunk_N, at_N = _runs(first_C, length_C)
        chunk_M, at_M = _runs(np.zeros_like(first_C), first_C)
        # 2. Where they lie in the cache: page · page size + row.
        slots = [table_CW[chunk, at // page] * page + at % page for chunk, at in ((chunk_N, at_N), (chunk_M, at_M))]
        # 3. Rows of the packed pass: keys of the past lie behind those of the new tokens, and are prefixes.
        start_C, before_C = length_C.cumsum() - length_C, tokens + first_C.cumsum() - first_C
        segments = np.stack([start_C, length_C, before_C, first_C], axis=1)
        self._layout = Layout(segments, cache.device, past)
        # 4. One upload of all that kernels read.
        rows = upload(np.concatenate([*slots, chunk_N, at_N + 1, table_CW.ravel()]), cache.device)
        slots_N, past_M, self._chunk_N, lengths_N, table = rows.split([tokens, past, tokens, tokens, table_CW.size])
        self._where, self._past = _where(cache, slots_N), _where(cache, past_M)
        self._lengths_N, self._table_CW = lengths_N.int(), table.int().view(table_CW.shape)

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Write down keys and values, then attend to the past and to the chunk so far; (N, H, D)."""
        query_NHD, (keys, values) = query_HND.transpose(0, 1), self._cache[layer]
        _write(self._cache[layer], self._where, key_HND, value_HND)
        if in_exact_mode():  # every token by the kernel that decodes, as `KernelAttention` has it
            where = (self._table_CW, self._chunk_N, self._lengths_N)
            return paged_attention(query_NHD, keys, values, *where, scale, window)
        # (N + M, kv heads, head dim): the new tokens, then the past of all chunks.
        k, v = (
            torch.cat([new_HND.transpose(0, 1), rows_at(pages.transpose(1, 2), self._past).to(new_HND.dtype)])
            for new_HND, pages in ((key_HND, keys), (value_HND, values))
        )
        return packed_attention_forward(query_NHD, k, v, self._layout, scale, window)[0]


def _runs(first_C: np.ndarray, length_C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Run c counts up length_C[c] numbers from first_C[c]: the run (T,) and the number (T,) of all, in order."""
    run_T = np.repeat(np.arange(len(length_C)), length_C)
    start_C = length_C.cumsum() - length_C
    return run_T, np.arange(int(length_C.sum())) - start_C[run_T] + first_C[run_T]


def _where(cache: Tensor, slots_N: Tensor) -> tuple[Tensor, Tensor]:
    """Pages and rows in them of slots; computed once for all layers."""
    page = cache.shape[4]
    return slots_N // page, slots_N % page


def _write(layer: Tensor, where: tuple[Tensor, Tensor], key_HND: Tensor, value_HND: Tensor) -> None:
    for pages, rows_HND in zip(layer, (key_HND, value_HND)):
        rows_NHD = rows_HND.transpose(0, 1)
        if pages.dtype == NARROW:
            rows_NHD = rows_NHD.clamp(-LARGEST, LARGEST).to(NARROW)
        bits(pages.transpose(1, 2)).index_put_(where, bits(rows_NHD))


def bits(tensor: Tensor) -> Tensor:
    """The same memory in a dtype that can be indexed: torch has no indexing of 8-bit floats."""
    return tensor.view(torch.uint8) if tensor.dtype == NARROW else tensor


def rows_at(tensor: Tensor, where: tuple[Tensor, ...]) -> Tensor:
    """Rows of a tensor of any dtype at some places."""
    return bits(tensor)[where].view(tensor.dtype)
