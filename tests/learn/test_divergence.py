"""Divergences from a teacher against float64 sums over the vocabulary, and against TRL's numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from algos.golden import peers
from torch import Tensor

from whet.learn import log_probs
from whet.learn.divergence import between, divergence
from whet.model.load import Head

N, H, V = 40, 6, 29
NAMES = [("reverse_kl", 0.5), ("forward_kl", 0.5), ("jsd", 0.5), ("jsd", 0.1), ("jsd", 0.9), ("jsd", 0.0), ("jsd", 1.0)]


def _inputs(dtype: torch.dtype, teacher_vocabulary: int = V) -> list[Tensor]:
    """Hidden states, weight and bias of the policy, then of the teacher."""
    g = torch.Generator().manual_seed(2)
    shapes = ((N, H), (V, H), (V,), (N, H), (teacher_vocabulary, H), (teacher_vocabulary,))
    values = [torch.randn(*shape, dtype=torch.float64, generator=g).mul(0.6).to(dtype) for shape in shapes]
    return [value.requires_grad_(i < 3) for i, value in enumerate(values)]


def _ours(inputs: list[Tensor], temperature: float, name: str, beta: float, softcap: float | None = None) -> Tensor:
    heads = Head(*inputs[1:3], softcap), Head(*inputs[4:], softcap)
    return divergence(inputs[0], heads[0], inputs[3], heads[1], temperature, name, beta)


def _probabilities(
    hidden: Tensor, weight: Tensor, bias: Tensor, temperature: float, softcap: float | None
) -> np.ndarray:
    logits = (hidden.detach().double() @ weight.detach().double().t() + bias.detach().double()).numpy()
    logits = logits if softcap is None else softcap * np.tanh(logits / softcap)
    powers = np.exp(logits / temperature)
    return powers / powers.sum(-1, keepdims=True)


def _by_hand(s: np.ndarray, t: np.ndarray, name: str, beta: float) -> np.ndarray:
    """The definitions, in float64 and on probabilities rather than their logarithms."""
    if name == "reverse_kl" or (name, beta) == ("jsd", 1.0):
        return (s * np.log(s / t)).sum(-1)
    if name == "forward_kl" or (name, beta) == ("jsd", 0.0):
        return (t * np.log(t / s)).sum(-1)
    m = beta * t + (1 - beta) * s
    return beta * (t * np.log(t / m)).sum(-1) + (1 - beta) * (s * np.log(s / m)).sum(-1)


@pytest.mark.parametrize("chunk", [V, 3 * 17 * V, 2**24])
@pytest.mark.parametrize(("temperature", "softcap"), [(1.0, None), (0.7, None), (1.3, 2.0)])
@pytest.mark.parametrize(("name", "beta"), NAMES)
def test_like_float64(
    name: str, beta: float, temperature: float, softcap: float | None, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_probs, "_CHUNK_ELEMENTS", chunk)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        inputs = _inputs(dtype)
        s, t = (_probabilities(*inputs[i : i + 3], temperature, softcap) for i in (0, 3))
        ours = _ours(inputs, temperature, name, beta, softcap)
        assert ours.dtype == dtype
        assert np.abs(ours.detach().double().numpy() - _by_hand(s, t, name, beta)).max() < tolerance


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_value_and_gradient_like_trl(beta: float) -> None:
    """`generalized_jsd_loss` of TRL's GKD trainer at temperature 0.8; hidden states are logits of an identity head."""
    given = peers()["gkd"]
    student, teacher = (torch.tensor(given[name], dtype=torch.float64).flatten(0, 1) for name in ("student", "teacher"))
    head = Head(torch.eye(student.shape[1], dtype=torch.float64), None, None)
    student.requires_grad_()
    found = divergence(student, head, teacher, head, 0.8, "jsd", beta).sum()
    expected = given["jsd"][str(beta)]
    assert float(found) == pytest.approx(expected["loss"], rel=1e-8)
    grad = torch.autograd.grad(found, student)[0]
    torch.testing.assert_close(
        grad, torch.tensor(expected["grad"], dtype=torch.float64).flatten(0, 1), atol=1e-8, rtol=1e-6
    )


@pytest.mark.parametrize(("policy", "teacher"), [(V, V + 4), (V, V - 5)])
def test_heads_that_are_padded_differently(policy: int, teacher: int) -> None:
    inputs, common = _inputs(torch.float64, teacher), min(policy, teacher)
    s = _probabilities(inputs[0], inputs[1][:common], inputs[2][:common], 1.0, None)
    t = _probabilities(inputs[3], inputs[4][:common], inputs[5][:common], 1.0, None)
    found = _ours(inputs, 1.0, "jsd", 0.3).detach().numpy()
    assert np.abs(found - _by_hand(s, t, "jsd", 0.3)).max() < 1e-12


def test_distributions_without_overlap_are_finite() -> None:
    far = torch.tensor([[0.0, -80.0], [-90.0, 0.0]], dtype=torch.float32).log_softmax(-1)
    for name in ("reverse_kl", "forward_kl"):
        assert torch.all(between(far[:1], far[1:], name, 0.5) > 70)
    assert float(between(far[:1], far[1:], "jsd", 0.5)) == pytest.approx(math.log(2), rel=1e-5)


def test_logits_are_not_kept_for_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_probs, "_CHUNK_ELEMENTS", 3 * 16 * V)
    inputs, kept = _inputs(torch.float32), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        found = _ours(inputs, 1.0, "jsd", 0.5)
    assert found.requires_grad
    assert not [shape for shape in kept if len(shape) == 2 and shape[-1] == V]
