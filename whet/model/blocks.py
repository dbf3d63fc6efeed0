"""The fused halves of a decoder layer, for a device that runs whet.kernels.

A layer is attention_input, attention, the output projection, then feed_forward (`feed_forward.py`): each adds what came
before to the residual stream, norms the sum and projects it, `delta` being what is yet to be added. The numbers are
those of transformers' own modules. For backward little is kept, and the normed input and the activation are made again.
Projections may have low-rank adapters. `Function.apply` has no types: the plain functions below it are the interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet.kernels.norm import add_rms_norm, add_rms_norm_backward, normalise
from whet.kernels.rotary import rotate, rotate_to_pages
from whet.kernels.rotary_backward import rotate_backward_
from whet.model.block_gradients import cast, input_grads, twice, weight_grads
from whet.model.low_rank import Adapters, adapter_gradients, add_low_rank_, joined, scales, tensors
from whet.model.weights import adjacent, columns_of_one


@dataclass(frozen=True, slots=True)
class Norm:
    """An RMS norm over the hidden size: its weight (H,), and 1 as offset where the weight is counted from one."""

    weight: Tensor
    eps: float
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class QKNorm:
    """The RMS norms of every query and key head: weights (D,)."""

    q_weight: Tensor
    k_weight: Tensor
    eps: float
    offset: float = 0.0


Triple = tuple[Tensor, Tensor, Tensor]


def attention_input(
    delta_NH: Tensor,
    residual_NH: Tensor | None,
    norm: Norm,
    weights: Triple,
    biases: Triple | None,
    rope: tuple[Tensor, Tensor],
    heads: int,
    kv_heads: int,
    qk_norm: QKNorm | None,
    adapters: Adapters = (None, None, None),
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q_NHD, k_NKD, v_NKD with their positions turned in, and sum_NH = residual + delta.

    The backward works inside the gradients of q, k and v where they are views of one (N, C) buffer.
    """
    return _AttentionInput.apply(
        delta_NH,
        residual_NH,
        norm.weight,
        *weights,
        *(biases or (None, None, None)),
        *((qk_norm.q_weight, qk_norm.k_weight) if qk_norm else (None, None)),
        (norm, qk_norm, *rope, heads, kv_heads, scales(adapters)),
        *tensors(adapters),
    )


def attention_input_to_pages(
    delta_NH: Tensor,
    residual_NH: Tensor | None,
    norm: Norm,
    weights: Triple,
    biases: Triple | None,
    rope: tuple[Tensor, Tensor],
    heads: int,
    kv_heads: int,
    qk_norm: QKNorm | None,
    keys: Tensor,
    values: Tensor,
    slots_N: Tensor,
    adapters: Adapters = (None, None, None),
) -> tuple[Tensor, Tensor]:
    """q_NHD and sum_NH of `attention_input`, without gradient; keys and values go to their slots of the paged cache."""
    y_NH, sum_NH, _ = add_rms_norm(delta_NH, residual_NH, norm.weight, norm.eps, norm.offset)
    qkv_NC = F.linear(y_NH, adjacent(*weights), adjacent(*biases) if biases else None)
    add_low_rank_(qkv_NC, y_NH, [weight.shape[0] for weight in weights], adapters)
    cos_ND, sin_ND = rope
    q_norm, k_norm, eps, offset = _head_norm(qk_norm)
    q_NHD = rotate_to_pages(qkv_NC, cos_ND, sin_ND, heads, kv_heads, q_norm, k_norm, eps, offset, keys, values, slots_N)
    return q_NHD, sum_NH


def final_norm(delta_NH: Tensor, residual_NH: Tensor | None, norm: Norm) -> Tensor:
    """The norm of residual + delta, where the sum itself is of no more use."""
    return _FinalNorm.apply(delta_NH, residual_NH, norm.weight, norm)


def rms_norm(x_NH: Tensor, norm: Norm) -> Tensor:
    """The plain norm, for models that also norm what a half of the layer gives."""
    return _FinalNorm.apply(x_NH, None, norm.weight, norm)


class _AttentionInput(torch.autograd.Function):
    """Keeps the sum and its rstd, and q, k, v as projected when heads are normed."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        delta_NH: Tensor,
        residual_NH: Tensor | None,
        _norm_weight: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_bias: Tensor | None,
        k_bias: Tensor | None,
        v_bias: Tensor | None,
        _q_norm: Tensor | None,
        _k_norm: Tensor | None,
        rest: tuple[Norm, QKNorm | None, Tensor, Tensor, int, int, tuple[float, ...]],
        *low_rank: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        norm, qk_norm, cos_ND, sin_ND, heads, kv_heads, factors = rest
        y_NH, sum_NH, rstd_N = add_rms_norm(delta_NH, residual_NH, norm.weight, norm.eps, norm.offset)
        bias = adjacent(q_bias, k_bias, v_bias) if q_bias is not None else None  # type: ignore[arg-type]
        qkv_NC = F.linear(y_NH, adjacent(q, k, v), bias)
        add_low_rank_(qkv_NC, y_NH, [w.shape[0] for w in (q, k, v)], joined(low_rank, factors))
        q_NHD, k_NKD, v_NKD = rotate(qkv_NC, cos_ND, sin_ND, heads, kv_heads, *_head_norm(qk_norm))
        before = qkv_NC if qk_norm else None
        norms = _head_norm(qk_norm)[:2]
        ctx.save_for_backward(sum_NH, rstd_N, before, cos_ND, sin_ND)
        ctx.parameters = (norm.weight, q, k, v, *norms, *low_rank)  # not copies of them (block_gradients.py)
        ctx.factors = factors
        ctx.norm, ctx.qk_norm, ctx.heads, ctx.kv_heads = _numbers(norm), _numbers(qk_norm), heads, kv_heads
        ctx.biases = (q_bias, k_bias, v_bias)
        ctx.set_materialize_grads(False)
        return q_NHD, k_NKD, v_NKD, sum_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        sum_NH, rstd_N, qkv_NC, cos_ND, sin_ND = ctx.saved_tensors
        norm_weight, q, k, v, q_norm, k_norm, *low_rank = ctx.parameters
        weights, heads, kv_heads = (q, k, v), ctx.heads, ctx.kv_heads
        grad_NC = columns_of_one(grads[:3], (heads, kv_heads, kv_heads), sum_NH, cos_ND.shape[1])
        head_grads = rotate_backward_(grad_NC, qkv_NC, cos_ND, sin_ND, heads, kv_heads, q_norm, k_norm, *ctx.qk_norm)
        needed = ctx.needs_input_grad
        projections = weight_grads(grad_NC, weights, needed[3:6], sum_NH, rstd_N, norm_weight, ctx.norm[1])
        bias_grads: list[Tensor | None] = [None] * 3
        if any(needed[6:9]):
            parts = grad_NC.sum(0, dtype=torch.float32).split([w.shape[0] for w in weights])
            bias_grads = [cast(part, bias) if need else None for part, bias, need in zip(parts, ctx.biases, needed[6:])]
        widths, adapters = [w.shape[0] for w in weights], joined(low_rank, ctx.factors)
        low_rank_grads: list[Tensor | None] = [None] * len(low_rank)
        if any(adapter is not None for adapter in adapters):
            y_NH = normalise(sum_NH, rstd_N, norm_weight, ctx.norm[1])
            low_rank_grads = adapter_gradients(grad_NC, y_NH, widths, adapters)
        grad_sum, grad_norm = input_grads(
            ctx, grad_NC, adjacent(*weights), grads[3], sum_NH, rstd_N, norm_weight, widths, adapters
        )
        grad_q_norm, grad_k_norm = (
            (cast(head_grads[0], q_norm), cast(head_grads[1], k_norm)) if head_grads else (None, None)
        )
        heads_grads = (grad_q_norm, grad_k_norm)
        return (*twice(ctx, grad_sum), grad_norm, *projections, *bias_grads, *heads_grads, None, *low_rank_grads)


class _FinalNorm(torch.autograd.Function):
    """Keeps the sum and its rstd."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, delta_NH: Tensor, residual_NH: Tensor | None, _norm_weight: Tensor, norm: Norm
    ) -> Tensor:
        y_NH, sum_NH, rstd_N = add_rms_norm(delta_NH, residual_NH, norm.weight, norm.eps, norm.offset)
        ctx.save_for_backward(sum_NH, rstd_N)
        ctx.norm, ctx.weight = _numbers(norm), norm.weight
        return y_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (sum_NH, rstd_N), weight = ctx.saved_tensors, ctx.weight
        grad_NH, grad_weight = add_rms_norm_backward(grad_y, None, sum_NH, rstd_N, weight, ctx.norm[1])
        return (*twice(ctx, grad_NH), cast(grad_weight, weight), None)


def _head_norm(qk_norm: QKNorm | None) -> tuple[Tensor | None, Tensor | None, float, float]:
    return (qk_norm.q_weight, qk_norm.k_weight, *_numbers(qk_norm)) if qk_norm else (None, None, 0.0, 0.0)


def _numbers(norm: Norm | QKNorm | None) -> tuple[float, float]:
    return (norm.eps, norm.offset) if norm else (0.0, 0.0)
