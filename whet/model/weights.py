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
    if not _lie_adjacent(tensors):
        return torch.cat([tensor.detach() for tensor in tensors])
    rows = sum([tensor.shape[0] for tensor in tensors])
    first = tensors[0].detach()
    return first.as_strided((rows, *first.shape[1:]), first.stride())


def columns_of_one(grads: tuple[Tensor | None, ...], heads: tuple[int, ...], like_NH: Tensor, D: int) -> Tensor:
    """The gradients of q, k, v as one (N, C) buffer: theirs where they are views of one, else a copy."""
    N, C = like_NH.shape[0], sum(heads) * D
    first = grads[0]
    if first is not None and _held(first) >= N * C * first.element_size():
        start = first.data_ptr()
        for grad, width in zip(grads, heads):
            if grad is None or grad.data_ptr() != start or grad.stride() != (C, D, 1):
                break
            start += width * D * first.element_size()
        else:
            return first.as_strided((N, C), (C, 1))
    given = (like_NH.new_zeros(N, h, D) if grad is None else grad for grad, h in zip(grads, heads))
    return torch.cat([grad.reshape(N, -1) for grad in given], dim=1)


def adds_in_place(weight: Tensor, like: Tensor) -> bool:
    """Return True if a product can be added to the gradient of earlier micro-batches as it is computed.

    Then no gradient of this micro-batch alone is ever written and read again. It is so for bf16 weights on a GPU whose
    gradients add up in fp32; those of shards are reduced first.
    """
    grad = weight.grad if weight.is_leaf else None
    if grad is None or type(grad) is not Tensor or not like.is_cuda or like.dtype != torch.bfloat16:
        return False
    return grad.dtype == torch.float32 and grad.is_contiguous()


def add_product_(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to a total in fp32, without rounding the product to a narrower dtype first."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    elif left.is_cuda:
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
    else:
        total += left.float() @ right.float()


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
    # This runs for every layer and pass, so it asks little: pointers that follow each other inside the first's storage.
    first = tensors[0]
    start = end = first.data_ptr()
    dtype, stride = first.dtype, first.stride()
    for tensor in tensors:
        if tensor.data_ptr() != end or tensor.dtype != dtype or tensor.stride() != stride or not tensor.is_contiguous():
            return False
        end += tensor.numel() * first.element_size()
    return first.numel() > 0 and end - start <= _held(first)


def _held(tensor: Tensor) -> int:
    """Bytes of the tensor's storage from its first element on."""
    return int(tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size())
