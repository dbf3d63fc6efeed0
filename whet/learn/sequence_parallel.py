"""Sequence parallelism (DeepSpeed-Ulysses, Jacobs et al., 2023): ranks that each hold some tokens of every packed row.

Everything but attention looks at tokens one by one. Before attention, the ranks of a group exchange tokens for heads:
each gets all tokens of some of the heads, and how packed tokens see each other stays as it is; afterwards they exchange
back. A token's hidden state, and with it what it predicts, stays on the rank that has the token: only log-probs and the
like are put together again, so that every rank of the group has the whole loss and the gradient of its own tokens.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from whet.learn.packing import Packed
from whet.learn.ranks import ranks_of
from whet.model.attention import Attention


def own_tokens(model: nn.Module, packed: Packed) -> Packed:
    """What of a packed row this rank runs through a model: all of it, where no ranks share rows."""
    group = ranks_of(model).sequence
    return packed if group is None else _cut(packed, group)


def _cut(packed: Packed, group: dist.ProcessGroup) -> Packed:
    """A slice of the row, which is as long on every rank: the last one is filled up with tokens that nobody sees."""
    tokens, size, rank = len(packed.ids_N), dist.get_world_size(group), dist.get_rank(group)
    n = -(-tokens // size)
    ids_n, positions_n = (
        F.pad(x, (0, n * size - tokens))[..., rank * n : (rank + 1) * n] for x in (packed.ids_N, packed.positions_N)
    )
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
    """Attention over a whole row of which this rank has some tokens, computed for some heads on each rank."""

    def __init__(self, whole_row: Attention, tokens: int, group: dist.ProcessGroup) -> None:
        self._whole_row, self._tokens, self._group = whole_row, tokens, group
        self._size = dist.get_world_size(group)

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Attention of this rank's tokens; (n, H, D)."""
        # Where there are fewer key-value heads than ranks, several get the same one; its gradients add up.
        more = max(1, self._size // len(key_HND))
        key_HND, value_HND = (x.repeat_interleave(more, dim=0) if more > 1 else x for x in (key_HND, value_HND))
        query, key, value = (
            self._all_tokens(x)[: self._tokens].transpose(0, 1) for x in (query_HND, key_HND, value_HND)
        )
        out_NhD = self._whole_row.attend(layer, query, key, value, scale, window)
        n = query_HND.shape[1]
        padded = F.pad(out_NhD, (0, 0, 0, 0, 0, n * self._size - self._tokens))
        exchanged = _Exchange.apply(padded.unflatten(0, (self._size, n)), self._group)  # (ranks, n, h, D)
        return exchanged.transpose(0, 1).flatten(1, 2)

    def _all_tokens(self, x_HnD: Tensor) -> Tensor:
        """(N, h, D): this rank's heads of the whole row."""
        parts = x_HnD.transpose(0, 1).unflatten(1, (self._size, -1)).transpose(0, 1)  # (ranks, n, h, D)
        return _Exchange.apply(parts, self._group).flatten(0, 1)


class _Exchange(torch.autograd.Function):
    """The i-th of the first dimension goes to rank i; its own inverse, and so is its gradient."""

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
    """Values of all response tokens from those that each rank has; backward, each rank's own.

    Every rank of the group makes the same loss of them: gradients are not added up here.
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
