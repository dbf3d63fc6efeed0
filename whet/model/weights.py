"""Weights of projections that read the same input, side by side in memory, so that one product serves them all.

The model keeps its own Parameters; each becomes a view of its rows of one tensor. Whatever moves a Parameter later
(`.to()`, deepcopy) may part them again: `adjacent` then copies, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def lay_adjacent(*linears: nn.Linear) -> None:
    """Move weights, and biases where all have one, into one tensor each; Parameters stay the objects they are."""
    _move([linear.weight for linear in linears])
    biases = [linear.bias for linear in linears if linear.bias is not None]
    if len(biases) == len(linears):
        _move(biases)


def adjacent(*tensors: Tensor) -> Tensor:
    """The tensors' rows as one tensor, outside autograd: without a copy where they lie adjacent in memory."""
    first = tensors[0].detach()
    if not _lie_adjacent(tensors):
        return torch.cat([tensor.detach() for tensor in tensors])
    rows = sum(tensor.shape[0] for tensor in tensors)
    return first.as_strided((rows, *first.shape[1:]), first.stride())


def columns_of_one(grads: tuple[Tensor | None, ...], heads: tuple[int, ...], like_NH: Tensor, D: int) -> Tensor:
    """The gradients of q, k, v as one (N, C) buffer: theirs where they are views of one, else a copy."""
    N, C = like_NH.shape[0], sum(heads) * D
    first = grads[0]
    if first is not None:
        starts = [first.storage_offset() + sum(heads[:i]) * D for i in range(len(heads))]
        if all(
            grad is not None
            and grad.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
            and grad.storage_offset() == start
            and grad.stride() == (C, D, 1)
            for grad, start in zip(grads, starts)
        ):
            return first.as_strided((N, C), (C, 1))
    given = (like_NH.new_zeros(N, h, D) if grad is None else grad for grad, h in zip(grads, heads))
    return torch.cat([grad.reshape(N, -1) for grad in given], dim=1)


def _move(parameters: Sequence[Tensor]) -> None:
    """Make each parameter a view of its rows of one new tensor, unless that is so or cannot be."""
    kinds = {(type(p.data), p.dtype, p.device, p.shape[1:]) for p in parameters}
    once = len({id(p) for p in parameters}) == len(parameters)  # tied to each other: one place cannot be two
    if len(kinds) > 1 or not once or parameters[0].is_meta or _lie_adjacent(parameters):
        return
    rows = [p.shape[0] for p in parameters]
    for parameter, view in zip(parameters, adjacent(*parameters).split(rows)):
        parameter.data = view


def _lie_adjacent(tensors: Sequence[Tensor]) -> bool:
    first, end = tensors[0], tensors[0].storage_offset()
    for tensor in tensors:
        same = tensor.dtype == first.dtype and tensor.device == first.device and tensor.shape[1:] == first.shape[1:]
        if not same or not tensor.is_contiguous() or tensor.storage_offset() != end:
            return False
        if tensor.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return False
        end += tensor.numel()
    return True
