"""Keys and values of the sequences being decoded, and attention over them: prefill, behind a kept prefix, decode.

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


class ExtendAttention:
    """Packed attention of new tokens, each row behind keys and values that were computed before.

    Rows of similar length are computed together, padded to the longest of them.
    """

    def __init__(self, past: list[Tensor], lengths: list[int]) -> None:
        """`past` holds (layers, 2, P, heads, head_dim) of each row, `lengths` its number of new tokens."""
        self._lengths = lengths
        self._starts = [sum(lengths[:i]) for i in range(len(lengths))]
        buckets: dict[int, list[int]] = {}  # rows by the power of two that their length is below
        for row, (kv, n) in enumerate(zip(past, lengths)):
            buckets.setdefault((kv.shape[2] + n).bit_length(), []).append(row)
        self._blocks = [
            _Block([past[row] for row in rows], [lengths[row] for row in rows]) for rows in buckets.values()
        ]
        self._rows = list(buckets.values())
        self._place = {row: (b, i) for b, rows in enumerate(self._rows) for i, row in enumerate(rows)}

    def whole(self, row: int) -> Tensor:
        """Return (layers, 2, P + n, heads, head_dim) of a row, after the forward pass."""
        block, place = self._place[row]
        return self._blocks[block].whole(place)

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        out_NHD = query_HND.new_empty(query_HND.shape[1], query_HND.shape[0], value_HND.shape[2])
        for rows, block in zip(self._rows, self._blocks):
            # Places in the packed row of this block's new tokens, in the order of its rows.
            at = torch.cat([torch.arange(self._starts[r], self._starts[r] + self._lengths[r]) for r in rows])
            at = at.to(query_HND.device)
            out_NHD[at] = block.attend(layer, query_HND[:, at], key_HND[:, at], value_HND[:, at], scale, window)
        return out_NHD


class _Block:
    """R rows of similar length: keys and values padded to L tokens, new tokens to n."""

    def __init__(self, past: list[Tensor], lengths: list[int]) -> None:
        layers, _, _, heads, head_dim = past[0].shape
        device = past[0].device
        self._ends = [kv.shape[2] + n for kv, n in zip(past, lengths)]
        # 1. (R, layers, 2, L, heads, head_dim), with what is known and zeros behind it.
        self._kv = past[0].new_zeros((len(past), layers, 2, max(self._ends), heads, head_dim))
        for row, kv in enumerate(past):
            self._kv[row, :, :, : kv.shape[2]] = kv
        # 2. Row and place among the new tokens of each packed token, and its place in the whole row.
        self._row_M = torch.repeat_interleave(torch.arange(len(past)), torch.tensor(lengths)).to(device)
        self._new_M = torch.cat([torch.arange(n) for n in lengths]).to(device)
        self._at_M = torch.cat([torch.arange(kv.shape[2], kv.shape[2] + n) for kv, n in zip(past, lengths)]).to(device)
        # 3. Place in the whole row of every query (R, n), padding included: there it is any place.
        starts = torch.tensor([kv.shape[2] for kv in past], device=device)
        self._query_Rn = starts[:, None] + torch.arange(max(lengths), device=device)
        self._seen: dict[int | None, Tensor] = {}

    def whole(self, row: int) -> Tensor:
        """Return (layers, 2, P + n, heads, head_dim) of a row."""
        return self._kv[row, :, :, : self._ends[row]]

    def attend(
        self, layer: int, query_HMD: Tensor, key_HMD: Tensor, value_HMD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Return (M, heads, head_dim) of this block's new tokens."""
        R, n = self._query_Rn.shape
        self._kv[self._row_M, layer, 0, self._at_M] = key_HMD.transpose(0, 1)
        self._kv[self._row_M, layer, 1, self._at_M] = value_HMD.transpose(0, 1)
        queries = query_HMD.new_zeros((R, n, query_HMD.shape[0], query_HMD.shape[2]))
        queries[self._row_M, self._new_M] = query_HMD.transpose(0, 1)
        keys, values = (self._kv[:, layer, i].transpose(1, 2) for i in (0, 1))
        out_RHnD = F.scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys,
            values,
            attn_mask=self._mask(window)[:, None],
            scale=scale,
            enable_gqa=query_HMD.shape[0] != key_HMD.shape[0],
        )
        return out_RHnD.transpose(1, 2)[self._row_M, self._new_M]

    def _mask(self, window: int | None) -> Tensor:
        """(R, n, L): a query sees keys up to its own, or the last `window` of those."""
        if window not in self._seen:
            distance = self._query_Rn[:, :, None] - torch.arange(self._kv.shape[3], device=self._kv.device)
            self._seen[window] = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        return self._seen[window]


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
