"""Rotary positions and head norms against transformers' functions and autograd in float64."""

from __future__ import annotations

import pytest
import torch
from kernels.conftest import DEVICE
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from whet.kernels.rotary import rotate, rotate_to_pages
from whet.kernels.rotary_backward import rotate_backward_

EPS = 1e-6
# Triton's interpreter truncates to bf16 where a device rounds; fp16 it rounds.
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16
SHAPES = [(3, 1, 16), (9, 3, 64), (2, 2, 32)]


def _rope(N: int, D: int) -> tuple[Tensor, Tensor]:
    angles = torch.arange(N)[:, None] * 3 + torch.arange(D // 2) * 0.7
    both = torch.cat([angles, angles], dim=1)
    return both.cos().to(DEVICE), both.sin().to(DEVICE)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def _expected(
    qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int, norms: tuple[Tensor, Tensor] | None, offset: float
) -> list[Tensor]:
    D = cos.shape[1]
    q, k, v = qkv.unflatten(1, (-1, D)).split([heads, kv_heads, kv_heads], dim=1)
    if norms:
        q, k = (
            x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * (weight + offset)
            for x, weight in zip((q, k), norms)
        )
    q, k = apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1)
    return [q, k, v]


@pytest.mark.parametrize(("heads", "kv_heads", "D"), SHAPES)
@pytest.mark.parametrize("offset", [None, 0.0, 1.0])
def test_forward_and_backward_against_float64(heads: int, kv_heads: int, D: int, offset: float | None) -> None:
    N, C = 5, (heads + 2 * kv_heads) * D
    cos, sin = _rope(N, D)
    qkv = _random(N, C)
    norms = None if offset is None else (_random(D, seed=1), _random(D, seed=2))
    extra = (*norms, EPS, offset) if norms and offset is not None else ()
    inputs64 = [x.double().requires_grad_() for x in (qkv, *(norms or ()))]
    expected = _expected(
        inputs64[0], cos.double(), sin.double(), heads, kv_heads, tuple(inputs64[1:]) if norms else None, offset or 0.0
    )
    given = qkv.clone()
    got = rotate(given, cos, sin, heads, kv_heads, *extra)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a.double(), b.detach(), rtol=1e-5, atol=1e-5)
    assert norms is None or torch.equal(given, qkv)
    assert (got[0].data_ptr() == given.data_ptr()) == (norms is None)

    grad = _random(N, C, seed=3)
    expected_grads = torch.autograd.grad(torch.cat([x.flatten(1) for x in expected], 1), inputs64, grad.double())
    weight_grads = rotate_backward_(grad, qkv, cos, sin, heads, kv_heads, *extra)
    for a, b in zip([grad, *(weight_grads or ())], expected_grads):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=2e-5)


def test_gradients_of_norm_weights_over_many_tokens_and_head_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.kernels.rotary_backward._BACKWARD_PROGRAMS", 2)
    heads, kv_heads, D, N = 34, 6, 256, 5
    cos, sin = _rope(N, D)
    qkv, grad = _random(N, (heads + 2 * kv_heads) * D), _random(N, (heads + 2 * kv_heads) * D, seed=3)
    norms = (_random(D, seed=1), _random(D, seed=2))
    inputs64 = [x.double().requires_grad_() for x in (qkv, *norms)]
    expected = _expected(inputs64[0], cos.double(), sin.double(), heads, kv_heads, (inputs64[1], inputs64[2]), 0.0)
    flat = torch.cat([x.flatten(1) for x in expected], 1)
    expected_grads = torch.autograd.grad(flat, inputs64, grad.double())
    again = grad.clone()
    weight_grads = rotate_backward_(grad, qkv, cos, sin, heads, kv_heads, *norms, EPS, 0.0)
    assert weight_grads is not None
    for a, b in zip([grad, *weight_grads], expected_grads):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-4)
    weight_grads_again = rotate_backward_(again, qkv, cos, sin, heads, kv_heads, *norms, EPS, 0.0)
    assert weight_grads_again is not None
    assert torch.equal(grad, again)
    assert all(torch.equal(a, b) for a, b in zip(weight_grads, weight_grads_again))


@pytest.mark.parametrize(("heads", "kv_heads", "D"), SHAPES)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("P", [1, 4])
def test_pages_hold_what_rotate_gives(heads: int, kv_heads: int, D: int, normed: bool, P: int) -> None:
    N = 4
    cos, sin = _rope(N, D)
    qkv = _random(N, (heads + 2 * kv_heads) * D)
    norms = (_random(D, seed=1), _random(D, seed=2)) if normed else (None, None)
    keys, values = (torch.full((12 // P, kv_heads, P, D), -7.0, device=DEVICE) for _ in range(2))
    slots = torch.tensor([9, 2, -1, 6], device=DEVICE)
    q = rotate_to_pages(qkv, cos, sin, heads, kv_heads, *norms, EPS, 0.0, keys, values, slots)
    expected_q, expected_k, expected_v = rotate(qkv.clone(), cos, sin, heads, kv_heads, *norms, EPS, 0.0)
    # Without a norm the two kernels are the same arithmetic; compiled, they add up a norm in orders of their own.
    tolerance = 1e-6 if normed and DEVICE == "cuda" else 0.0
    torch.testing.assert_close(q, expected_q, rtol=tolerance, atol=tolerance)
    for cache, expected in ((keys, expected_k), (values, expected_v)):
        rows = cache.transpose(1, 2).reshape(12, kv_heads, D)
        for token, slot in ((0, 9), (1, 2), (3, 6)):
            torch.testing.assert_close(rows[slot], expected[token], rtol=tolerance, atol=tolerance)
        assert (rows == -7.0).sum() == 9 * kv_heads * D


@pytest.mark.parametrize("normed", [False, True])
def test_half_precision_rounds_once_after_the_turn(normed: bool) -> None:
    heads, kv_heads, D, N = 3, 1, 32, 6
    cos, sin = (x.to(HALF) for x in _rope(N, D))
    qkv = _random(N, (heads + 2 * kv_heads) * D).to(HALF)
    norms = (_random(D, seed=1).to(HALF), _random(D, seed=2).to(HALF)) if normed else None
    got = rotate(qkv.clone(), cos, sin, heads, kv_heads, *((*norms, EPS, 0.0) if norms else ()))
    expected = _expected(
        qkv.float(),
        cos.float(),
        sin.float(),
        heads,
        kv_heads,
        (norms[0].float(), norms[1].float()) if norms else None,
        0.0,
    )
    for a, b in zip(got, expected):
        unit = torch.finfo(HALF).eps
        torch.testing.assert_close(a.float(), b, rtol=unit / 2, atol=8 * unit if normed else 1e-6)


def test_refuses_shapes_that_do_not_belong_together() -> None:
    cos, sin = _rope(2, 16)
    with pytest.raises(ValueError, match="power of two"):
        rotate(_random(2, 5 * 24), cos, sin, 3, 1)
