"""Keys and values of the sequences being decoded, and attention over them: prefill and decode.

A slot is one sequence's page: on a CPU, contiguous memory that torch's fused attention reads in place is worth more
than small pages, and running sequences always fill slots 0..B-1, so that a decode step works on a view and gathers
nothing. Prompts are prefilled once and copied into the slots of their samples. The cache grows as responses do.

Attention reads every slot up to the longest sequence and masks what is not the slot's own. What it reads there must be
numbers, because a masked NaN is still NaN: memory is cleared just before it comes into reach.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from whet.model.attention import PackedAttention, Segment

_GROWTH = 64  # tokens by which a slot grows, at least
_CLEAR = 32  # tokens cleared at a time: one at a time is slow


class SlotCache:
    """(layers, 2, slots, capacity, kv heads, head dim); index 1 is key or value."""

    def __init__(self, layers: int, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self._shape = (layers, heads, head_dim)
        self._dtype, self._device = dtype, device
        self.data = self._empty(0, 0)
        self._clear = (0, 0)  # slots and tokens that hold numbers, not what the memory held before

    def _empty(self, slots: int, capacity: int) -> Tensor:
        layers, heads, head_dim = self._shape
        return torch.empty((layers, 2, slots, capacity, heads, head_dim), dtype=self._dtype, device=self._device)

    def reserve(self, slots: int, tokens: int) -> None:
        """Make room for `slots` sequences of `tokens` tokens, keeping what is there."""
        if slots > self.data.shape[2] or tokens > self.data.shape[3]:
            self._grow(slots, tokens)
        clear_slots, clear_tokens = self._clear
        if slots <= clear_slots and tokens <= clear_tokens:
            return
        slots = max(slots, clear_slots)
        tokens = clear_tokens if tokens <= clear_tokens else min(tokens + _CLEAR, self.data.shape[3])
        self.data[:, :, :clear_slots, clear_tokens:tokens] = 0
        self.data[:, :, clear_slots:slots, :tokens] = 0
        self._clear = (slots, tokens)

    def _grow(self, slots: int, tokens: int) -> None:
        have_slots, have_tokens = self.data.shape[2:4]
        clear_slots, clear_tokens = self._clear
        grown = self._empty(
            max(slots, have_slots),
            have_tokens if tokens <= have_tokens else max(tokens, have_tokens * 5 // 4) + _GROWTH,
        )
        # Layer by layer: at no moment are two whole caches touched, and untouched memory costs nothing.
        for new, old in zip(grown, self.data):
            new[:, :clear_slots, :clear_tokens] = old[:, :clear_slots, :clear_tokens]
        self.data = grown

    def fill(self, slot: int, kv: Tensor) -> None:
        """Copy a prefilled prompt (layers, 2, P, heads, head_dim) into a slot."""
        self.data[:, :, slot, : kv.shape[2]] = kv

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` of one slot over another."""
        self.data[:, :, target, :tokens] = self.data[:, :, source, :tokens]

    def release(self) -> None:
        """Give the memory back."""
        self.data = self._empty(0, 0)
        self._clear = (0, 0)


class PrefillAttention:
    """Packed attention over whole prompts that remembers the keys and values it saw."""

    def __init__(self, lengths: list[int], device: torch.device) -> None:
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        self._packed = PackedAttention([Segment(s, n) for s, n in zip(starts, lengths)], device)
        self.layers: dict[int, Tensor] = {}  # layer -> (2, N, heads, head_dim)

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        self.layers[layer] = torch.stack([key_HND.transpose(0, 1), value_HND.transpose(0, 1)])
        return self._packed.attend(layer, query_HND, key_HND, value_HND, scale, window)


class DecodeAttention:
    """Token i of the row belongs to slot i: its key and value join the cache, its query sees that slot."""

    def __init__(self, cache: SlotCache, positions_B: Tensor, length: int) -> None:
        """`length` is how far into the slots any query looks: more than every position."""
        self._positions = positions_B
        self._slots = torch.arange(len(positions_B), device=positions_B.device)
        self._length = length
        self._data = cache.data
        self._masks: dict[int | None, Tensor] = {}

    def _mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        if window not in self._masks:
            keys = torch.arange(self._length, device=self._positions.device)
            seen = keys <= self._positions[:, None]
            if window is not None:
                seen &= keys > self._positions[:, None] - window
            mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
            self._masks[window] = mask[:, None, None, :]
        return self._masks[window]

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        heads, B, head_dim = query_HND.shape
        keys, values = self._data[layer]  # (slots, capacity, kv heads, head_dim)
        keys.index_put_((self._slots, self._positions), key_HND.transpose(0, 1))
        values.index_put_((self._slots, self._positions), value_HND.transpose(0, 1))
        # The query heads that share a kv head become rows of one small product, so each key is read once.
        query = query_HND.transpose(0, 1).reshape(B, key_HND.shape[0], -1, head_dim)
        out = F.scaled_dot_product_attention(
            query,
            keys[:B, : self._length].transpose(1, 2),
            values[:B, : self._length].transpose(1, 2),
            attn_mask=self._mask(window, query.dtype),
            scale=scale,
        )
        return out.reshape(B, heads, head_dim)
