"""Low-rank adapters beside the projections of the fused blocks: out += scale · (x Aᵀ) Bᵀ, and its gradients.

Several projections of one input lie side by side as the columns of one output; each may have an adapter or none. The
modules are PEFT's, whose tensors are read where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ADAPTER = "default"  # PEFT's name for a model's only adapter


class LowRank(NamedTuple):
    """An adapter of rank R of a projection from H to O."""

    a_RH: Tensor
    b_OR: Tensor
    scale: float


Adapters = Sequence[LowRank | None]


def base_of(module: nn.Module) -> nn.Module:
    """The projection itself, of a module with an adapter or without."""
    return module.base_layer if _is_adapted(module) else module  # type: ignore[return-value]


def is_plain(module: Any) -> bool:
    """Return True for a plain linear layer, and for one with a plain adapter: no dropout, no bias, no magnitude."""
    if not _is_adapted(module):
        return type(module) is nn.Linear  # a subclass (a quantised layer) computes something else from its weight
    return (
        type(module.base_layer) is nn.Linear
        and list(module.active_adapters) == [ADAPTER]
        and isinstance(module.lora_dropout[ADAPTER], nn.Identity)
        and module.lora_B[ADAPTER].bias is None
        and not getattr(module, "lora_variant", None)
        and not module.merged
    )


def low_rank_of(module: Any) -> LowRank | None:
    """The adapter of a module; None where it has none, or where it is switched off."""
    if not _is_adapted(module) or module.disable_adapters:
        return None
    return LowRank(module.lora_A[ADAPTER].weight, module.lora_B[ADAPTER].weight, float(module.scaling[ADAPTER]))


def _is_adapted(module: Any) -> bool:
    return hasattr(module, "base_layer") and hasattr(module, "lora_A")


def projected(x_NH: Tensor, module: nn.Module) -> Tensor:
    """The output of a projection with its adapter, differentiable."""
    base, adapter = base_of(module), low_rank_of(module)
    out_NO = F.linear(x_NH, base.weight, base.bias)  # type: ignore[arg-type]
    if adapter is None:
        return out_NO
    return out_NO + F.linear(F.linear(x_NH, adapter.a_RH), adapter.b_OR) * adapter.scale


def tensors(adapters: Adapters) -> list[Tensor | None]:
    """A and B of every adapter, None where there is none: as a Function takes them."""
    return [each for adapter in adapters for each in (adapter[:2] if adapter is not None else (None, None))]


def scales(adapters: Adapters) -> tuple[float, ...]:
    """The scale of every adapter, 0 where there is none."""
    return tuple(0.0 if adapter is None else adapter.scale for adapter in adapters)


def joined(flat: Sequence[Tensor | None], factors: Sequence[float]) -> list[LowRank | None]:
    """The adapters that `tensors` and `scales` took apart."""
    pairs = zip(flat[::2], flat[1::2], factors)
    return [None if a is None or b is None else LowRank(a, b, scale) for a, b, scale in pairs]


def add_low_rank_(out_NC: Tensor, x_NH: Tensor, widths: Sequence[int], adapters: Adapters) -> None:
    """Add what adapters give to the columns of their projections, in place."""
    if any(adapter is not None for adapter in adapters):
        for part_NO, adapter in zip(out_NC.split(list(widths), dim=1), adapters):
            if adapter is not None:
                part_NO.addmm_(F.linear(x_NH, adapter.a_RH), adapter.b_OR.t(), alpha=adapter.scale)


def add_input_gradient_(grad_x_NH: Tensor, grad_NC: Tensor, widths: Sequence[int], adapters: Adapters) -> None:
    """Add to the gradient of the input what comes back through the adapters, in place."""
    if any(adapter is not None for adapter in adapters):
        for part_NO, adapter in zip(grad_NC.split(list(widths), dim=1), adapters):
            if adapter is not None:
                grad_x_NH.addmm_(part_NO @ adapter.b_OR, adapter.a_RH, alpha=adapter.scale)


def adapter_gradients(grad_NC: Tensor, x_NH: Tensor, widths: Sequence[int], adapters: Adapters) -> list[Tensor | None]:
    """Gradients of A and B of every adapter, in the order of `tensors`, in the dtype that they accumulate in."""
    found: list[Tensor | None] = []
    for part_NO, adapter in zip(grad_NC.split(list(widths), dim=1), adapters):
        if adapter is None:
            found += [None, None]
            continue
        z_NR, grad_z_NR = F.linear(x_NH, adapter.a_RH), part_NO @ adapter.b_OR
        grad_a = weight_product(grad_z_NR, x_NH, adapter.a_RH).mul_(adapter.scale)
        found += [grad_a, weight_product(part_NO, z_NR, adapter.b_OR).mul_(adapter.scale)]
    return found


def weight_product(grad_NC: Tensor, x_NH: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a weight, in fp32 straight from the product where the weight accumulates in that."""
    if grad_dtype(weight) == torch.float32 and grad_NC.is_cuda and grad_NC.dtype != torch.float32:
        return torch.mm(grad_NC.t(), x_NH, out_dtype=torch.float32)
    return grad_NC.t() @ x_NH


def grad_dtype(parameter: Tensor) -> torch.dtype:
    """Return the dtype in which a leaf accumulates its gradient."""
    return (parameter.is_leaf and parameter.grad_dtype) or parameter.dtype
