"""Gradients that the fused blocks of a layer share: of the summed input, of the norm, of projections side by side.

A block keeps its parameters as attributes of its context. Saved tensors of a recomputed layer would be copies without
the parameter's gradient and its dtype: products could not be added to the gradient so far, and would be rounded to bf16
for every micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from whet.kernels.norm import add_rms_norm_backward, normalise
from whet.model.low_rank import Adapters, add_input_gradient_, grad_dtype, weight_product
from whet.model.weights import add_product_, adds_in_place


def twice(ctx: Any, grad_sum: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of the sum is that of both its terms."""
    return tuple(grad_sum if need else None for need in ctx.needs_input_grad[:2])  # type: ignore[return-value]


def input_grads(
    ctx: Any,
    grad_NC: Tensor,
    weight_CH: Tensor,
    grad_sum: Tensor | None,
    sum_NH: Tensor,
    rstd_N: Tensor,
    norm_weight: Tensor,
    widths: Sequence[int] = (),
    adapters: Adapters = (),
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the sum and of the norm's weight, from that of what was projected, with adapters or without."""
    if not any(ctx.needs_input_grad[:3]):
        return None, None
    grad_y = grad_NC @ weight_CH
    add_input_gradient_(grad_y, grad_NC, widths, adapters)
    grad, grad_weight = add_rms_norm_backward(grad_y, grad_sum, sum_NH, rstd_N, norm_weight, ctx.norm[1])
    return grad, cast(grad_weight, norm_weight)


def weight_grads(
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
    grad_CH = weight_product(grad_NC, y_NH, weights[0])
    parts = grad_CH.split([weight.shape[0] for weight in weights])
    return [part if need else None for part, need in zip(parts, needed)]


def added_or_product(grad_NC: Tensor, x_NH: Tensor, weight: Tensor) -> Tensor | None:
    """The gradient of a weight; None after adding it to that of earlier micro-batches."""
    if not adds_in_place(weight, x_NH):
        return weight_product(grad_NC, x_NH, weight)
    add_product_(weight.grad, grad_NC.t(), x_NH)  # type: ignore[arg-type]
    return None


def cast(grad: Tensor, parameter: Tensor) -> Tensor:
    """A gradient in the dtype in which its parameter accumulates."""
    return grad.to(grad_dtype(parameter))
