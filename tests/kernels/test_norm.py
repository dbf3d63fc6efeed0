"""RMS norms against transformers' own modules and autograd in float64."""

from __future__ import annotations

import pytest
import torch
from kernels.conftest import DEVICE
from torch import Tensor
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from whet.kernels.norm import add_rms_norm, add_rms_norm_backward, normalise

EPS = 1e-5
# Triton's interpreter truncates to bf16 where a device rounds; fp16 it rounds.
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16


def _normed(x: Tensor, weight: Tensor, offset: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * (weight + offset)


def _tensors(N: int, H: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(H)
    shapes = [(N, H), (N, H), (H,), (N, H), (N, H)]
    return tuple(torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in shapes)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("module", [LlamaRMSNorm, Gemma3RMSNorm])
def test_equals_the_module_with_its_roundings(module: type[torch.nn.Module], dtype: torch.dtype) -> None:
    delta, residual, weight, _, _ = _tensors(6, 96, dtype)
    norm = module(96, eps=EPS).to(DEVICE, dtype)
    norm.weight.data.copy_(weight)
    offset = float(module is Gemma3RMSNorm)
    y, total, rstd = add_rms_norm(delta, residual, weight, EPS, offset)
    torch.testing.assert_close(total, residual + delta, rtol=0, atol=0)
    # The mean may be summed in another order: one unit in the last place is then possible, but rare.
    expected = norm(residual + delta)
    tolerance = 1e-6 if dtype == torch.float32 else torch.finfo(HALF).eps
    torch.testing.assert_close(y, expected, rtol=tolerance, atol=1e-6)
    assert (y == expected).float().mean() > (0.0 if dtype == torch.float32 else 0.99)
    assert rstd.dtype == torch.float32
    assert torch.equal(normalise(total, rstd, weight, offset), y)


def test_without_a_residual_the_sum_is_the_input_itself() -> None:
    delta, _, weight, _, _ = _tensors(3, 40)
    y, total, _ = add_rms_norm(delta, None, weight, EPS, 0.0)
    assert total is delta
    torch.testing.assert_close(y, _normed(delta, weight, 0.0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("with_grad_sum", [True, False])
@pytest.mark.parametrize(("N", "H"), [(1, 16), (37, 72), (5, 2048)])
def test_gradients_against_float64(N: int, H: int, with_grad_sum: bool, offset: float) -> None:
    delta, residual, weight, grad_y, grad_sum = _tensors(N, H)
    _, total, rstd = add_rms_norm(delta, residual, weight, EPS, offset)
    grad, grad_weight = add_rms_norm_backward(grad_y, grad_sum if with_grad_sum else None, total, rstd, weight, offset)
    x64, weight64 = total.double().requires_grad_(), weight.double().requires_grad_()
    loss = (_normed(x64, weight64, offset) * grad_y).sum() + (x64 * grad_sum).sum() * with_grad_sum
    expected = torch.autograd.grad(loss, [x64, weight64])
    torch.testing.assert_close(grad.double(), expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grad_weight.double(), expected[1], rtol=1e-5, atol=1e-5)


def test_gradient_of_many_rows_is_the_same_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.kernels.norm._BACKWARD_WARPS", 3)  # several rows for each program
    _, total, weight, grad_y, _ = _tensors(20, 48)
    _, _, rstd = add_rms_norm(total, None, weight, EPS, 0.0)
    one, other = (add_rms_norm_backward(grad_y, None, total, rstd, weight, 0.0) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other))
    hat = total.double() * rstd.double()[:, None]
    torch.testing.assert_close(one[1].double(), (grad_y.double() * hat).sum(0), rtol=1e-5, atol=1e-5)


def test_a_row_does_not_depend_on_its_batch() -> None:
    delta, residual, weight, _, _ = _tensors(9, 72)
    whole = add_rms_norm(delta, residual, weight, EPS, 0.0)
    alone = add_rms_norm(delta[4:5], residual[4:5], weight, EPS, 0.0)
    assert all(torch.equal(a[4:5], b) for a, b in zip(whole, alone))


def test_no_rows() -> None:
    _, _, weight, _, _ = _tensors(1, 16)
    empty = weight.new_empty(0, 16)
    y, total, rstd = add_rms_norm(empty, empty, weight, EPS, 0.0)
    grad, grad_weight = add_rms_norm_backward(y, None, total, rstd, weight, 0.0)
    assert y.shape == grad.shape == (0, 16)
    assert not grad_weight.any()
