"""The gated unit of an MLP, act(gate) · up, on the fused output of both projections, and its gradient.

As in transformers, act(gate) is rounded to the dtype before the product with up; everything else is in fp32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ACTIVATIONS = ("silu", "gelu_pytorch_tanh")

_BLOCK, _WARPS = 1024, 4


@triton.jit
def activated(gate, SILU: tl.constexpr):
    """act(gate) and its derivative."""
    # tanh(z) = 2 sigmoid(2z) - 1, so gelu's 0.5 (1 + tanh(z)) is one sigmoid, of 2z.
    inner = gate
    slope = 1.0
    if not SILU:
        inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
        slope = 1.5957691216057308 * (1.0 + 0.134145 * gate * gate)
    s = tl.sigmoid(inner)
    return gate * s, s + gate * s * (1.0 - s) * slope


@triton.jit
def _glu(gate_up_N2I, act_NI, width, SILU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < width
    gate = tl.load(gate_up_N2I + row * 2 * width + cols, mask=inside, other=0.0)
    up = tl.load(gate_up_N2I + row * 2 * width + width + cols, mask=inside, other=0.0)
    act, _ = activated(gate.to(tl.float32), SILU)
    act = act.to(gate.dtype).to(tl.float32) * up.to(tl.float32)
    tl.store(act_NI + row * width + cols, act.to(act_NI.dtype.element_ty), mask=inside)


@triton.jit
def _glu_backward(grad_NI, gate_up_N2I, grad_N2I, act_NI, width, SILU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < width
    gate = tl.load(gate_up_N2I + row * 2 * width + cols, mask=inside, other=0.0)
    up = tl.load(gate_up_N2I + row * 2 * width + width + cols, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_NI + row * width + cols, mask=inside, other=0.0).to(tl.float32)
    act, slope = activated(gate.to(tl.float32), SILU)
    act = act.to(gate.dtype).to(tl.float32)
    tl.store(act_NI + row * width + cols, (act * up).to(act_NI.dtype.element_ty), mask=inside)
    tl.store(grad_N2I + row * 2 * width + cols, (grad * up * slope).to(grad_N2I.dtype.element_ty), mask=inside)
    tl.store(grad_N2I + row * 2 * width + width + cols, (grad * act).to(grad_N2I.dtype.element_ty), mask=inside)


def glu(gate_up_N2I: Tensor, activation: str) -> Tensor:
    """act(gate) · up as (N, I), where the first I columns are the gate's."""
    N, width = gate_up_N2I.shape
    gate_up_N2I = gate_up_N2I.contiguous()
    act_NI = gate_up_N2I.new_empty(N, width // 2)
    if N:
        grid = (N, triton.cdiv(width // 2, _BLOCK))
        _glu[grid](gate_up_N2I, act_NI, width // 2, is_silu(activation), _BLOCK, num_warps=_WARPS)
    return act_NI


def glu_backward(grad_act_NI: Tensor, gate_up_N2I: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """The gradient of gate_up, and what `glu` returned for it, recomputed in the same pass."""
    N, width = gate_up_N2I.shape
    gate_up_N2I, grad_act_NI = gate_up_N2I.contiguous(), grad_act_NI.contiguous()
    grad_N2I = torch.empty_like(gate_up_N2I)
    act_NI = torch.empty_like(grad_act_NI)
    if N:
        grid = (N, triton.cdiv(width // 2, _BLOCK))
        _glu_backward[grid](
            grad_act_NI, gate_up_N2I, grad_N2I, act_NI, width // 2, is_silu(activation), _BLOCK, num_warps=_WARPS
        )
    return grad_N2I, act_NI


def is_silu(activation: str) -> bool:
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r}: the gated unit has {', '.join(ACTIVATIONS)}")
    return activation == "silu"
