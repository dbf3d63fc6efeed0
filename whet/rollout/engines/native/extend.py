"""Attention of new tokens behind a kept prefix, such as a conversation to which a turn was added."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
