"""The sampler on the device against the plain one, and against the learner's log-probs."""

from __future__ import annotations

import pytest
import torch
from kernels.conftest import DEVICE
from torch import Tensor

from whet.kernels.log_probs import row_statistics
from whet.kernels.sampling import sample
from whet.rollout.engines.native.sampler import sample_alike


def _inputs(B: int, V: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(B, V, generator=g)
    return logits.to(DEVICE), torch.rand(B, dtype=torch.float64, generator=g).to(DEVICE)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(("B", "V"), [(20, 50), (6, 4096), (6, 10_000)])
def test_same_tokens_as_the_plain_sampler(B: int, V: int, temperature: float) -> None:
    logits, uniforms = _inputs(B, V)
    tokens, log_probs = sample(logits, temperature, uniforms)
    expected, expected_log_probs = sample_alike(logits, temperature, uniforms)
    assert tokens.dtype == torch.int64
    assert torch.equal(tokens, expected)  # this seed has no number on a boundary
    torch.testing.assert_close(log_probs, expected_log_probs, atol=4e-6, rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_same_log_probs_as_the_learner_to_the_bit(dtype: torch.dtype, temperature: float) -> None:
    logits, uniforms = _inputs(4, 9000)
    logits = logits.to(dtype)
    tokens, log_probs = sample(logits, temperature, uniforms)
    for want_entropy in (False, True):
        assert torch.equal(row_statistics(logits, tokens, temperature or 1.0, want_entropy)[0], log_probs)


def test_a_row_does_not_depend_on_the_others() -> None:
    logits, uniforms = _inputs(6, 5000)
    tokens, log_probs = sample(logits, 0.9, uniforms)
    for rows in (slice(2, 3), slice(3, 6)):
        again = sample(logits[rows], 0.9, uniforms[rows])
        assert torch.equal(again[0], tokens[rows])
        assert torch.equal(again[1], log_probs[rows])


def test_never_a_token_without_probability() -> None:
    """Numbers at both ends of [0, 1), with the only likely tokens in the middle of the vocabulary."""
    logits = torch.full((4, 9000), float("-inf"))
    logits[:, [4500, 4501, 6000]] = torch.tensor([0.0, 1.0, -2.0])
    uniforms = torch.tensor([0.0, 1.0 - 2**-53, 0.5, 1.0], dtype=torch.float64)
    tokens, log_probs = sample(logits.to(DEVICE), 1.0, uniforms.to(DEVICE))
    assert tokens.tolist() == [4500, 6000, 4501, 6000]
    assert torch.isfinite(log_probs).all()
    logits[:, 6000] = -3e3  # a chunk whose whole probability is lost to rounding
    tokens, _ = sample(logits.to(DEVICE), 1.0, uniforms.to(DEVICE))
    assert tokens.tolist() == [4500, 4501, 4501, 4501]


def test_greedy_takes_the_first_of_equals() -> None:
    logits = torch.zeros(3, 9000)
    logits[0, [100, 4100, 8200]] = 5.0
    logits[1, 8999] = 1.0
    uniforms = torch.full((3,), 0.99, dtype=torch.float64)
    tokens, log_probs = sample(logits.to(DEVICE), 0.0, uniforms.to(DEVICE))
    assert tokens.tolist() == [100, 8999, 0]
    exact = logits.double().log_softmax(-1)[torch.arange(3), tokens.cpu()]  # in fp32 a sum of 9000 may be off by 1e-5
    torch.testing.assert_close(log_probs.cpu(), exact.float(), atol=4e-6, rtol=1e-6)


def test_frequencies_follow_the_probabilities() -> None:
    """36 numbers spread evenly over [0, 1) against tokens of probability w / 36, over three chunks."""
    likely = torch.tensor([0, 77, 4095, 4096, 5000, 8191, 8192, 8999])
    weights = torch.arange(1, 9)
    logits = torch.full((1, 9000), float("-inf"))
    logits[0, likely] = weights.float().log()
    uniforms = (torch.arange(36, dtype=torch.float64) + 0.5) / 36
    tokens, _ = sample(logits.expand(36, -1).to(DEVICE), 1.0, uniforms.to(DEVICE))
    assert torch.equal((tokens.cpu()[:, None] == likely).sum(0), weights)
