"""The fused halves of a decoder layer, for a device that runs whet.kernels.

A layer is attention_input, attention, the output projection, then feed_forward: each adds what came before to the
residual stream, norms the sum and projects it, `delta` being what is yet to be added. The numbers are those of
transformers' own modules. For backward little is kept, and the normed input and the activation are made again.
`Function.apply` has no types: the plain functions below it are the interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet.kernels.glu import glu, glu_backward
from whet.kernels.norm import add_rms_norm, add_rms_norm_backward, normalise
from whet.kernels.rotary import rotate, rotate_to_pages
from whet.kernels.rotary_backward import rotate_backward_
from whet.model.weights import add_product_, adds_in_place, adjacent, columns_of_one


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
        (norm, qk_norm, *rope, heads, kv_heads),
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
) -> tuple[Tensor, Tensor]:
    """q_NHD and sum_NH of `attention_input`, without gradient; keys and values go to their slots of the paged cache."""
    y_NH, sum_NH, _ = add_rms_norm(delta_NH, residual_NH, norm.weight, norm.eps, norm.offset)
    qkv_NC = F.linear(y_NH, adjacent(*weights), adjacent(*biases) if biases else None)
    cos_ND, sin_ND = rope
    q_norm, k_norm, eps, offset = _head_norm(qk_norm)
    q_NHD = rotate_to_pages(qkv_NC, cos_ND, sin_ND, heads, kv_heads, q_norm, k_norm, eps, offset, keys, values, slots_N)
    return q_NHD, sum_NH


def feed_forward(
    delta_NH: Tensor,
    residual_NH: Tensor | None,
    norm: Norm,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str,
    recompute: bool = False,
) -> tuple[Tensor, Tensor]:
    """The MLP of the normed sum, out_NH, and sum_NH = residual + delta.

    `recompute` makes the backward pass project gate and up again, the largest activations of a layer.
    """
    return _FeedForward.apply(delta_NH, residual_NH, norm.weight, gate, up, down, norm, activation, recompute)


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
        rest: tuple[Norm, QKNorm | None, Tensor, Tensor, int, int],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        norm, qk_norm, cos_ND, sin_ND, heads, kv_heads = rest
        y_NH, sum_NH, rstd_N = add_rms_norm(delta_NH, residual_NH, norm.weight, norm.eps, norm.offset)
        bias = adjacent(q_bias, k_bias, v_bias) if q_bias is not None else None  # type: ignore[arg-type]
        qkv_NC = F.linear(y_NH, adjacent(q, k, v), bias)
        q_NHD, k_NKD, v_NKD = rotate(qkv_NC, cos_ND, sin_ND, heads, kv_heads, *_head_norm(qk_norm))
        before = qkv_NC if qk_norm else None
        ctx.save_for_backward(sum_NH, rstd_N, before, norm.weight, q, k, v, cos_ND, sin_ND, *_head_norm(qk_norm)[:2])
        ctx.norm, ctx.qk_norm, ctx.heads, ctx.kv_heads = _numbers(norm), _numbers(qk_norm), heads, kv_heads
        ctx.biases = (q_bias, k_bias, v_bias)
        ctx.set_materialize_grads(False)
        return q_NHD, k_NKD, v_NKD, sum_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        sum_NH, rstd_N, qkv_NC, norm_weight, q, k, v, cos_ND, sin_ND, q_norm, k_norm = ctx.saved_tensors
        weights, heads, kv_heads = (q, k, v), ctx.heads, ctx.kv_heads
        grad_NC = columns_of_one(grads[:3], (heads, kv_heads, kv_heads), sum_NH, cos_ND.shape[1])
        head_grads = rotate_backward_(grad_NC, qkv_NC, cos_ND, sin_ND, heads, kv_heads, q_norm, k_norm, *ctx.qk_norm)
        needed = ctx.needs_input_grad
        weight_grads = _weight_grads(grad_NC, weights, needed[3:6], sum_NH, rstd_N, norm_weight, ctx.norm[1])
        bias_grads: list[Tensor | None] = [None] * 3
        if any(needed[6:9]):
            parts = grad_NC.sum(0, dtype=torch.float32).split([w.shape[0] for w in weights])
            bias_grads = [
                _cast(part, bias) if need else None for part, bias, need in zip(parts, ctx.biases, needed[6:])
            ]
        grad_sum, grad_norm = _input_grads(ctx, grad_NC, adjacent(*weights), grads[3], sum_NH, rstd_N, norm_weight)
        grad_q_norm, grad_k_norm = (
            (_cast(head_grads[0], q_norm), _cast(head_grads[1], k_norm)) if head_grads else (None, None)
        )
        return (*_twice(ctx, grad_sum), grad_norm, *weight_grads, *bias_grads, grad_q_norm, grad_k_norm, None)


class _FeedForward(torch.autograd.Function):
    """Keeps the sum, its rstd and, unless they are recomputed, the projected gate and up."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        delta_NH: Tensor,
        residual_NH: Tensor | None,
        _norm_weight: Tensor,
        gate: Tensor,
        up: Tensor,
        down: Tensor,
        norm: Norm,
        activation: str,
        recompute: bool,
    ) -> tuple[Tensor, Tensor]:
        y_NH, sum_NH, rstd_N = add_rms_norm(delta_NH, residual_NH, norm.weight, norm.eps, norm.offset)
        gate_up_N2I = F.linear(y_NH, adjacent(gate, up))
        out_NH = F.linear(glu(gate_up_N2I, activation), down)
        kept = None if recompute else gate_up_N2I
        ctx.save_for_backward(sum_NH, rstd_N, kept, norm.weight, gate, up, down)
        ctx.norm, ctx.activation = _numbers(norm), activation
        ctx.set_materialize_grads(False)
        return out_NH, sum_NH

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, grad_out: Tensor | None, grad_sum: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        sum_NH, rstd_N, gate_up_N2I, norm_weight, gate, up, down = ctx.saved_tensors
        if grad_out is None:
            return (*_twice(ctx, grad_sum), *[None] * 7)
        needed = ctx.needs_input_grad
        if gate_up_N2I is None:
            gate_up_N2I = F.linear(normalise(sum_NH, rstd_N, norm_weight, ctx.norm[1]), adjacent(gate, up))
        grad_N2I, act_NI = glu_backward(grad_out @ down, gate_up_N2I, ctx.activation)
        grad_down = _added_or_product(grad_out, act_NI, down) if needed[5] else None
        del act_NI
        weights = (gate, up)
        weight_grads = _weight_grads(grad_N2I, weights, needed[3:5], sum_NH, rstd_N, norm_weight, ctx.norm[1])
        grad_sum, grad_norm = _input_grads(ctx, grad_N2I, adjacent(*weights), grad_sum, sum_NH, rstd_N, norm_weight)
        return (*_twice(ctx, grad_sum), grad_norm, *weight_grads, grad_down, None, None, None)


class _FinalNorm(torch.autograd.Function):
    """Keeps the sum and its rstd."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, delta_NH: Tensor, residual_NH: Tensor | None, _norm_weight: Tensor, norm: Norm
    ) -> Tensor:
        y_NH, sum_NH, rstd_N = add_rms_norm(delta_NH, residual_NH, norm.weight, norm.eps, norm.offset)
        ctx.save_for_backward(sum_NH, rstd_N, norm.weight)
        ctx.norm = _numbers(norm)
        return y_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        sum_NH, rstd_N, weight = ctx.saved_tensors
        grad_NH, grad_weight = add_rms_norm_backward(grad_y, None, sum_NH, rstd_N, weight, ctx.norm[1])
        return (*_twice(ctx, grad_NH), _cast(grad_weight, weight), None)


def _head_norm(qk_norm: QKNorm | None) -> tuple[Tensor | None, Tensor | None, float, float]:
    return (qk_norm.q_weight, qk_norm.k_weight, *_numbers(qk_norm)) if qk_norm else (None, None, 0.0, 0.0)


def _numbers(norm: Norm | QKNorm | None) -> tuple[float, float]:
    return (norm.eps, norm.offset) if norm else (0.0, 0.0)


def _twice(ctx: Any, grad_sum: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of the sum is that of both its terms."""
    return tuple(grad_sum if need else None for need in ctx.needs_input_grad[:2])  # type: ignore[return-value]


def _input_grads(
    ctx: Any,
    grad_NC: Tensor,
    weight_CH: Tensor,
    grad_sum: Tensor | None,
    sum_NH: Tensor,
    rstd_N: Tensor,
    norm_weight: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the sum and of the norm's weight, from that of what was projected."""
    if not any(ctx.needs_input_grad[:3]):
        return None, None
    grad_y = grad_NC @ weight_CH
    grad, grad_weight = add_rms_norm_backward(grad_y, grad_sum, sum_NH, rstd_N, norm_weight, ctx.norm[1])
    return grad, _cast(grad_weight, norm_weight)


def _weight_grads(
    grad_NC: Tensor,
    weights: tuple[Tensor, ...],
    needed: tuple[bool, ...],
    sum_NH: Tensor,
    rstd_N: Tensor,
    norm_weight: Tensor,
    offset: float,
) -> list[Tensor | None]:
    """One product for the weights side by side, then each weight's rows of it; None where it was added already."""
    if not any(needed):
        return [None] * len(weights)
    y_NH = normalise(sum_NH, rstd_N, norm_weight, offset)
    if all(needed) and all(adds_in_place(weight, y_NH) for weight in weights):
        for weight, part in zip(weights, grad_NC.split([weight.shape[0] for weight in weights], dim=1)):
            add_product_(weight.grad, part.t(), y_NH)  # type: ignore[arg-type]
        return [None] * len(weights)
    grad_CH = _product(grad_NC, y_NH, weights[0])
    parts = grad_CH.split([weight.shape[0] for weight in weights])
    return [part if need else None for part, need in zip(parts, needed)]


def _added_or_product(grad_NC: Tensor, x_NH: Tensor, weight: Tensor) -> Tensor | None:
    """The gradient of a weight; None after adding it to that of earlier micro-batches."""
    if not adds_in_place(weight, x_NH):
        return _product(grad_NC, x_NH, weight)
    add_product_(weight.grad, grad_NC.t(), x_NH)  # type: ignore[arg-type]
    return None


def _product(grad_NC: Tensor, x_NH: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a weight, in fp32 straight from the product where the weight accumulates in that."""
    if _grad_dtype(weight) == torch.float32 and grad_NC.is_cuda and grad_NC.dtype != torch.float32:
        return torch.mm(grad_NC.t(), x_NH, out_dtype=torch.float32)
    return grad_NC.t() @ x_NH


def _cast(grad: Tensor, parameter: Tensor) -> Tensor:
    return grad.to(_grad_dtype(parameter))


def _grad_dtype(parameter: Tensor) -> torch.dtype:
    """Return the dtype in which a leaf accumulates its gradient."""
    return (parameter.is_leaf and parameter.grad_dtype) or parameter.dtype
