"""The gated MLP of a decoder layer, fused with the norm before it; see `blocks.py`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet.kernels.glu import glu, glu_backward
from whet.kernels.norm import add_rms_norm, normalise
from whet.model.block_gradients import added_or_product, input_grads, twice, weight_grads
from whet.model.blocks import Norm
from whet.model.low_rank import (
    Adapters,
    adapter_gradients,
    add_input_gradient_,
    add_low_rank_,
    joined,
    scales,
    tensors,
)
from whet.model.weights import adjacent


def feed_forward(
    delta_NH: Tensor,
    residual_NH: Tensor | None,
    norm: Norm,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str,
    recompute: bool = False,
    adapters: Adapters = (None, None, None),
) -> tuple[Tensor, Tensor]:
    """The MLP of the normed sum, out_NH, and sum_NH = residual + delta.

    `recompute` makes the backward pass project gate and up again, the largest activations of a layer. `adapters` are
    those of gate, up and down.
    """
    given = (norm, activation, recompute, scales(adapters))
    return _FeedForward.apply(delta_NH, residual_NH, norm.weight, gate, up, down, given, *tensors(adapters))


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
        given: tuple[Norm, str, bool, tuple[float, ...]],
        *low_rank: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        norm, activation, recompute, factors = given
        adapters = joined(low_rank, factors)
        y_NH, sum_NH, rstd_N = add_rms_norm(delta_NH, residual_NH, norm.weight, norm.eps, norm.offset)
        gate_up_N2I = _gate_up(y_NH, gate, up, adapters)
        act_NI = glu(gate_up_N2I, activation)
        out_NH = F.linear(act_NI, down)
        add_low_rank_(out_NH, act_NI, down.shape[:1], adapters[2:])
        kept = None if recompute else gate_up_N2I
        ctx.save_for_backward(sum_NH, rstd_N, kept)
        ctx.parameters = (norm.weight, gate, up, down, *low_rank)  # not copies of them (block_gradients.py)
        ctx.norm, ctx.activation, ctx.factors = (norm.eps, norm.offset), activation, factors
        ctx.set_materialize_grads(False)
        return out_NH, sum_NH

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, grad_out: Tensor | None, grad_sum: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        sum_NH, rstd_N, gate_up_N2I = ctx.saved_tensors
        norm_weight, gate, up, down, *low_rank = ctx.parameters
        if grad_out is None:
            return (*twice(ctx, grad_sum), *[None] * (5 + len(low_rank)))
        needed, adapters, weights = ctx.needs_input_grad, joined(low_rank, ctx.factors), (gate, up)
        y_NH: Tensor | None = None
        if gate_up_N2I is None or any(adapter is not None for adapter in adapters[:2]):
            y_NH = normalise(sum_NH, rstd_N, norm_weight, ctx.norm[1])
            gate_up_N2I = _gate_up(y_NH, gate, up, adapters) if gate_up_N2I is None else gate_up_N2I
        # 1. The second projection: gradients of the activation, of its weight, of its adapter.
        grad_act = grad_out @ down
        add_input_gradient_(grad_act, grad_out, down.shape[:1], adapters[2:])
        grad_N2I, act_NI = glu_backward(grad_act, gate_up_N2I, ctx.activation)
        grad_down = added_or_product(grad_out, act_NI, down) if needed[5] else None
        low_rank_grads = adapter_gradients(grad_out, act_NI, down.shape[:1], adapters[2:])
        del act_NI, grad_act
        # 2. The first: gradients of gate and up, of their adapters, of the input.
        widths = (gate.shape[0], up.shape[0])
        first: list[Tensor | None] = [None] * 4
        if y_NH is not None:
            first = adapter_gradients(grad_N2I, y_NH, widths, adapters[:2])
        grads = weight_grads(grad_N2I, weights, needed[3:5], sum_NH, rstd_N, norm_weight, ctx.norm[1])
        grad_sum, grad_norm = input_grads(
            ctx, grad_N2I, adjacent(*weights), grad_sum, sum_NH, rstd_N, norm_weight, widths, adapters[:2]
        )
        return (*twice(ctx, grad_sum), grad_norm, *grads, grad_down, None, *first, *low_rank_grads)


def _gate_up(y_NH: Tensor, gate: Tensor, up: Tensor, adapters: Adapters) -> Tensor:
    """Gate and up side by side, (N, 2I), with their adapters."""
    gate_up_N2I = F.linear(y_NH, adjacent(gate, up))
    add_low_rank_(gate_up_N2I, y_NH, (gate.shape[0], up.shape[0]), adapters[:2])
    return gate_up_N2I
