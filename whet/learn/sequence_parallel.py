"""Sequence parallelism (DeepSpeed-Ulysses, Jacobs et al., 2023): every rank holds a slice of each packed row.

All layers but attention treat tokens independently. Before attention, the ranks of a group exchange tokens for heads:
each gets all tokens of some heads, so that the packed attention pattern is unchanged; afterwards they exchange back.
Hidden states stay on the rank that has the token. Only log-probs and other per-token results are put together, so that
every rank of the group has the whole loss and the gradient of its own tokens.

Shapes: N tokens of the whole row, n of this rank (N padded to a multiple of the ranks, divided by them); H heads, h of
this rank (H divided by the ranks); D the head size; M response tokens, m predicted by this rank's tokens.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from whet.learn.packing import Packed
from whet.model.attention import Attention


def own_tokens(packed: Packed, group: dist.ProcessGroup) -> Packed:
    """Return this rank's slice of a packed row, n tokens on every rank; the last slice is padded with unseen tokens."""
    tokens, size, rank = len(packed.ids_N), dist.get_world_size(group), dist.get_rank(group)
    # 1. Tokens rank·n to (rank + 1)·n of the row: (N,) → (n,).
    n = -(-tokens // size)
    ids_n, positions_n = (
        F.pad(x, (0, n * size - tokens))[..., rank * n : (rank + 1) * n] for x in (packed.ids_N, packed.positions_N)
    )
    # 2. The response tokens that those predict: indices (m,) into M. Places in the row become places in the slice.
    (mine,) = torch.where(packed.rows_M // n == rank)
    return replace(
        packed,
        ids_N=ids_n,
        positions_N=positions_n,
        attention=UlyssesAttention(packed.attention, tokens, group),
        rows_M=packed.rows_M[mine] - rank * n,
        targets_M=packed.targets_M[mine],
        media=None if packed.media is None else packed.media.between(rank * n, (rank + 1) * n),
        join=partial(_join, mine=mine, count=len(packed.rows_M), group=group),
    )


class UlyssesAttention:
    """Attention over a whole row of which each rank has n tokens, computed for h heads on each rank."""

    def __init__(self, whole_row: Attention, tokens: int, group: dist.ProcessGroup) -> None:
        self._whole_row, self._tokens, self._group = whole_row, tokens, group
        self._size = dist.get_world_size(group)

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Return the attention output (n, H, D) of this rank's tokens; inputs are (H, n, D) of them."""
        # 1. With fewer key-value heads than ranks, several ranks get the same one; its gradients add up.
        more = max(1, self._size // len(key_HND))
        key_HND, value_HND = (x.repeat_interleave(more, dim=0) if more > 1 else x for x in (key_HND, value_HND))
        # 2. Exchange tokens for heads: (H, n, D) → (N, h, D), without padding, → (h, N, D).
        query, key, value = (
            self._all_tokens(x)[: self._tokens].transpose(0, 1) for x in (query_HND, key_HND, value_HND)
        )
        out_NhD = self._whole_row.attend(layer, query, key, value, scale, window)
        # 3. Exchange heads for tokens: (N, h, D) → padded (ranks, n, h, D) → this rank's n tokens of all heads.
        n = query_HND.shape[1]
        padded = F.pad(out_NhD, (0, 0, 0, 0, 0, n * self._size - self._tokens))
        exchanged = _Exchange.apply(padded.unflatten(0, (self._size, n)), self._group)  # (ranks, n, h, D)
        return exchanged.transpose(0, 1).flatten(1, 2)

    def _all_tokens(self, x_HnD: Tensor) -> Tensor:
        """Return (ranks · n, h, D): this rank's heads of the whole row and its padding."""
        parts = x_HnD.transpose(0, 1).unflatten(1, (self._size, -1)).transpose(0, 1)  # (ranks, n, h, D)
        return _Exchange.apply(parts, self._group).flatten(0, 1)


class _Exchange(torch.autograd.Function):
    """Send index i of the first dimension to rank i (all-to-all): its own inverse, and its own gradient."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _exchanged(parts, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return _exchanged(grad, ctx.group), None


def _exchanged(parts: Tensor, group: dist.ProcessGroup) -> Tensor:
    sent = parts.contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return received


def _join(values: Tensor, mine: Tensor, count: int, group: dist.ProcessGroup) -> Tensor:
    joined: Tensor = _Join.apply(values, mine, count, group)
    return joined


class _Join(torch.autograd.Function):
    """Put together the values (M,) of all response tokens from each rank's (m,); backward, take each rank's own.

    Every rank of the group computes the same loss from them: gradients are not summed here.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, mine: Tensor, count: int, group: dist.ProcessGroup) -> Tensor:
        ctx.save_for_backward(mine)
        joined = values.new_zeros(count)
        joined[mine] = values
        dist.all_reduce(joined, group=group)
        return joined

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (mine,) = ctx.saved_tensors
        return grad[mine], None, None, None
