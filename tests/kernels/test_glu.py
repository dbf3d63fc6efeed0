"""The gated unit against transformers' activations and autograd in float64."""

from __future__ import annotations

import pytest
import torch
from kernels.conftest import DEVICE
from transformers.activations import ACT2FN

from whet.kernels.glu import ACTIVATIONS, glu, glu_backward

# Triton's interpreter truncates to bf16 where a device rounds; fp16 it rounds.
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16


def _gate_up(N: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (3 * torch.randn(N, 2 * width, generator=torch.Generator().manual_seed(width))).to(DEVICE, dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("width", [24, 1100])
def test_against_float64(width: int, activation: str) -> None:
    gate_up = _gate_up(5, width)
    grad_act = torch.randn(5, width, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    gate_up64 = gate_up.double().requires_grad_()
    gate, up = gate_up64.chunk(2, dim=1)
    expected = ACT2FN[activation](gate) * up
    (expected_grad,) = torch.autograd.grad(expected, gate_up64, grad_act.double())
    act = glu(gate_up, activation)
    torch.testing.assert_close(act.double(), expected.detach(), rtol=1e-5, atol=2e-6)
    grad, act_again = glu_backward(grad_act, gate_up, activation)
    torch.testing.assert_close(grad.double(), expected_grad, rtol=1e-5, atol=5e-6)
    assert torch.equal(act_again, act)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_rounds_where_the_module_rounds(activation: str) -> None:
    gate_up = _gate_up(4, 300, HALF)
    gate, up = gate_up.chunk(2, dim=1)
    act = glu(gate_up, activation)
    expected = ACT2FN[activation](gate) * up
    torch.testing.assert_close(act, expected, rtol=2 * torch.finfo(HALF).eps, atol=1e-5)
    assert (act == expected).float().mean() > 0.9


def test_refuses_other_activations() -> None:
    with pytest.raises(ValueError, match="relu"):
        glu(_gate_up(1, 8), "relu")
