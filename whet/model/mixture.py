"""A mixture of experts in place of a decoder layer's MLP, fused with the norm before it; see `blocks.py`.

Tokens are sorted by expert and each projection is one grouped product over all experts. Shapes: N tokens with K experts
each are S = N·K pairs; E experts of width I.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet.kernels.glu import glu, glu_backward
from whet.kernels.grouped import grouped_glu, grouped_linear, tile_rows
from whet.kernels.grouped_gradients import grouped_outer
from whet.kernels.norm import add_rms_norm, add_rms_norm_backward, normalise
from whet.kernels.routing import Groups, combine, group, route
from whet.model.block_gradients import added_or_product, cast, twice
from whet.model.blocks import Norm
from whet.model.low_rank import grad_dtype
from whet.model.routing import Routing, weights_of
from whet.model.weights import adds_in_place


class Experts(NamedTuple):
    """The parameters of a mixture, as transformers holds them."""

    router_EH: Tensor
    gate_up_E2IH: Tensor  # an expert's gate, then its up
    down_EHI: Tensor
    top_k: int
    normalised: bool  # weights of a token's experts sum to 1


def mixture(
    delta_NH: Tensor,
    residual_NH: Tensor | None,
    norm: Norm,
    experts: Experts,
    activation: str,
    recompute: bool = False,
    routing: tuple[Routing, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """The experts' weighted sum of the normed sum, out_NH, and sum_NH = residual + delta.

    `routing` says which experts to take, with the number of this layer there. `recompute` makes the backward pass
    project gate and up again.
    """
    keep = torch.is_grad_enabled() and not recompute
    given = (norm, experts, activation, keep, routing)
    return _Mixture.apply(delta_NH, residual_NH, norm.weight, *experts[:3], given)


class _Mixture(torch.autograd.Function):
    """Keeps the sum and its rstd, which experts a token has and, unless they are recomputed, the projected gate and up.

    The output of a pair is not kept: its product with the gradient is that of the activation with the gradient sent
    back through the second projection.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        delta_NH: Tensor,
        residual_NH: Tensor | None,
        _norm_weight: Tensor,
        router_EH: Tensor,
        gate_up_E2IH: Tensor,
        down_EHI: Tensor,
        given: tuple[Norm, Experts, str, bool, tuple[Routing, int] | None],
    ) -> tuple[Tensor, Tensor]:
        norm, experts, activation, keep, routing = given
        y_NH, sum_NH, rstd_N = add_rms_norm(delta_NH, residual_NH, norm.weight, norm.eps, norm.offset)
        # 1. Experts (N, K) of every token and their weights; pairs sorted by expert.
        known_NK = None if routing is None else routing[0].known(routing[1])
        experts_NK, weights_NK = route(F.linear(y_NH, router_EH), experts.top_k, experts.normalised, known_NK)
        if routing is not None:
            routing[0].note(routing[1], experts_NK)
        groups = group(experts_NK, len(router_EH), tile_rows(experts_NK.numel(), len(router_EH), y_NH.dtype))
        # 2. Gate and up of every pair, (S, 2I) where they are kept, and the gated unit, (S, I).
        gate_up_S2I = grouped_linear(y_NH, gate_up_E2IH, groups, gather=True) if keep else None
        act_SI = (
            grouped_glu(y_NH, gate_up_E2IH, groups, activation) if gate_up_S2I is None else glu(gate_up_S2I, activation)
        )
        # 3. The second projection (S, H), in the order of tokens again, and the weighted sum of a token's pairs.
        out_SH = grouped_linear(act_SI, down_EHI, groups, scatter=True)
        out_NH = combine(out_SH, weights_NK, experts.top_k)
        ctx.save_for_backward(sum_NH, rstd_N, gate_up_S2I, experts_NK, weights_NK, *groups[:3])
        ctx.parameters = (norm.weight, router_EH, gate_up_E2IH, down_EHI)  # not copies of them (block_gradients.py)
        ctx.norm, ctx.activation, ctx.top_k = (norm.eps, norm.offset), activation, experts.top_k
        ctx.normalised, ctx.rows = experts.normalised, groups.rows
        ctx.set_materialize_grads(False)
        return out_NH, sum_NH

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, grad_out: Tensor | None, grad_sum: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        sum_NH, rstd_N, gate_up_S2I, experts_NK, weights_NK, pairs_S, ends_E, tiles_3T = ctx.saved_tensors
        norm_weight, router, gate_up, down = ctx.parameters
        if grad_out is None:
            return (*twice(ctx, grad_sum), *[None] * 5)
        needed, groups = ctx.needs_input_grad, Groups(pairs_S, ends_E, tiles_3T, ctx.top_k, ctx.rows)
        y_NH = normalise(sum_NH, rstd_N, norm_weight, ctx.norm[1])
        if gate_up_S2I is None:
            gate_up_S2I = grouped_linear(y_NH, gate_up, groups, gather=True)
        grad_out, pairs_S = grad_out.contiguous(), pairs_S.long()
        # 1. The second projection: (S, I) before the weights of the pairs, which meet it here.
        unweighted_SI = grouped_linear(grad_out, down.transpose(1, 2), groups, gather=True)
        weights_S1 = weights_NK.flatten()[pairs_S, None]
        grad_gate_up_S2I, act_SI = glu_backward(unweighted_SI * weights_S1, gate_up_S2I, ctx.activation)
        grad_weights = torch.empty(len(pairs_S), dtype=torch.float32, device=grad_out.device)
        grad_weights[pairs_S] = (unweighted_SI.float() * act_SI.float()).sum(-1)
        grad_down = _weight_grad(grad_out, act_SI * weights_S1, groups, down, gather_left=True) if needed[5] else None
        del unweighted_SI, act_SI
        # 2. The first.
        grad_gate_up = _weight_grad(grad_gate_up_S2I, y_NH, groups, gate_up, gather_right=True) if needed[4] else None
        grad_y = combine(
            grouped_linear(grad_gate_up_S2I, gate_up.transpose(1, 2), groups, scatter=True), None, ctx.top_k
        )
        # 3. The router, through the weights.
        grad_logits = _logit_grad(y_NH, router, experts_NK, grad_weights.view_as(experts_NK), ctx.normalised)
        grad_router = added_or_product(grad_logits, y_NH, router) if needed[3] else None
        grad_y.addmm_(grad_logits, router)
        # 4. The norm and the sum.
        grad_sum, grad_norm = add_rms_norm_backward(grad_y, grad_sum, sum_NH, rstd_N, norm_weight, ctx.norm[1])
        return (*twice(ctx, grad_sum), cast(grad_norm, norm_weight), grad_router, grad_gate_up, grad_down, None)


def _logit_grad(y_NH: Tensor, router_EH: Tensor, experts_NK: Tensor, grad_NK: Tensor, normalised: bool) -> Tensor:
    """Gradient of the router's logits (N, E), in the dtype of the model."""
    with torch.enable_grad():
        logits_NE = F.linear(y_NH, router_EH).detach().requires_grad_()
        weights_NK = weights_of(logits_NE, experts_NK, normalised)
        (grad_NE,) = torch.autograd.grad(weights_NK, logits_NE, grad_NK)
    return grad_NE


def _weight_grad(
    left: Tensor, right: Tensor, groups: Groups, weight: Tensor, gather_left: bool = False, gather_right: bool = False
) -> Tensor | None:
    """Gradient of all experts' weights; None after adding it to that of earlier micro-batches."""
    if adds_in_place(weight, right):
        grouped_outer(left, right, groups, weight.grad, gather_left, gather_right, add=True)  # type: ignore[arg-type]
        return None
    out = torch.empty(weight.shape, dtype=grad_dtype(weight), device=weight.device)
    return grouped_outer(left, right, groups, out, gather_left, gather_right)
