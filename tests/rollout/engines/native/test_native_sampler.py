"""From logits to tokens: exact probabilities, exact filters, and never a token without probability."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.sampler import pick, sample
from whet.rollout.engines.native.sampling_rows import SamplingRows, _cut


def _logits(vocabulary: int, seed: int = 0, rows: int = 1) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 2


def _warped(logits: Tensor, params: SamplingParams) -> Tensor:
    """transformers' own filters, in the order that `generate` applies them."""
    ids = torch.zeros((len(logits), 1), dtype=torch.int64)
    if params.temperature != 1:
        logits = TemperatureLogitsWarper(params.temperature)(ids, logits)
    if params.top_k > 0:
        logits = TopKLogitsWarper(params.top_k)(ids, logits)
    if params.top_p < 1:
        logits = TopPLogitsWarper(params.top_p)(ids, logits)
    if params.min_p > 0:
        logits = MinPLogitsWarper(params.min_p)(ids, logits)
    return logits


def _chi_square_is_plausible(tokens: Tensor, probs: Tensor) -> bool:
    """Within five standard deviations of what the exact probabilities predict; rare tokens are counted together."""
    n = len(tokens)
    expected = probs.double() * n
    counts = torch.bincount(tokens, minlength=len(probs)).double()
    often = expected >= 8
    rare = (~often) & (expected > 0)
    observed = torch.cat([counts[often], counts[rare].sum()[None]])
    expected = torch.cat([expected[often], expected[rare].sum().clamp(min=1e-9)[None]])
    statistic = float(((observed - expected) ** 2 / expected)[expected > 1e-3].sum())
    degrees = len(observed) - 1
    return abs(statistic - degrees) < 5 * math.sqrt(2 * degrees) + 5


# Multiples of each chunk, a prime, a number below the smallest chunk, and one that only 32 divides.
@pytest.mark.parametrize("vocabulary", [7, 127, 320, 960, 1009, 1056, 1280])
def test_tokens_come_as_often_as_their_probability_says(vocabulary: int) -> None:
    n = 40_000
    logits = _logits(vocabulary)
    u = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tokens = torch.cat([sample(logits.expand(len(part), -1), [SamplingParams()] * len(part), part)[0]
                        for part in u.split(8000)])  # fmt: skip
    assert _chi_square_is_plausible(tokens, logits.softmax(-1)[0])


@pytest.mark.parametrize("vocabulary", [37, 320, 1280])
def test_a_token_is_the_inverse_of_the_cumulative_distribution(vocabulary: int) -> None:
    probs = _logits(vocabulary, rows=1).double().softmax(-1)
    edges = probs[0].cumsum(0)
    middles = edges - probs[0] / 2  # the uniform in the middle of each token's share
    assert pick(probs.expand(vocabulary, -1).contiguous(), middles).tolist() == list(range(vocabulary))


def test_filtered_tokens_come_as_often_as_their_renormalised_probability() -> None:
    params = SamplingParams(temperature=0.8, top_k=40, top_p=0.9, min_p=0.02)
    logits = _logits(320)
    u = torch.rand(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    tokens, _ = sample(logits.expand(len(u), -1), [params] * len(u), u)
    probs = _warped(logits, params).softmax(-1)[0]
    assert set(tokens.tolist()) <= set(probs.nonzero().flatten().tolist())
    assert _chi_square_is_plausible(tokens, probs)


@settings(max_examples=150, deadline=None)
@given(
    vocabulary=st.sampled_from([5, 64, 131, 320]),
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.7]),
    top_k=st.sampled_from([-1, 1, 2, 17, 1000]),
    top_p=st.sampled_from([0.01, 0.3, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
)
def test_filters_keep_the_tokens_that_transformers_keeps(vocabulary, seed, temperature, top_k, top_p, min_p) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = _logits(vocabulary, seed).double()  # double: sums of shares must not depend on their order
    kept = _cut((logits / temperature).softmax(-1), SamplingRows.of([params], torch.device("cpu")))
    assert (kept > 0).tolist() == (_warped(logits, params) > -torch.inf).tolist()


def test_each_row_of_a_batch_follows_its_own_parameters() -> None:
    all_params = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=2.5, top_k=3),
        SamplingParams(top_p=0.4),
        SamplingParams(temperature=0.5, min_p=0.3),
    ]
    logits = _logits(320, rows=len(all_params))
    u = torch.tensor([0.9, 0.1, 0.99, 0.5, 0.7], dtype=torch.float64)
    tokens, log_probs = sample(logits, all_params, u)
    for i, params in enumerate(all_params):
        token, log_prob = sample(logits[i : i + 1], [params], u[i : i + 1])
        assert (int(token), float(log_prob)) == (int(tokens[i]), pytest.approx(float(log_probs[i]), abs=1e-6))
        exact = torch.log_softmax(logits[i].double() / (params.temperature or 1.0), -1)[tokens[i]]
        assert float(log_probs[i]) == pytest.approx(float(exact), abs=1e-5)
    assert int(tokens[0]) == int(logits[0].argmax())


def _with_holes(vocabulary: int, seed: int) -> Tensor:
    """Probabilities of which most are zero, the first and the last among them."""
    random = torch.Generator().manual_seed(seed)
    probs = torch.rand(vocabulary, generator=random)
    probs[torch.rand(vocabulary, generator=random) < 0.97] = 0
    probs[[0, -1]] = 0
    probs[int(torch.randint(1, vocabulary - 1, (1,), generator=random))] = 0.3
    return probs / probs.sum()


@pytest.mark.parametrize("vocabulary", [37, 320, 1280])
def test_a_token_without_probability_is_never_drawn(vocabulary: int) -> None:
    edges = torch.tensor([0.0, 2.0**-53, 0.25, 0.5, 1 - 2.0**-24, 1 - 2.0**-53], dtype=torch.float64)
    for seed in range(200):
        # A total that is not one moves the rounding of the last edge.
        probs = _with_holes(vocabulary, seed) * (1 + seed * 1e-7)
        shares = probs.double().cumsum(0)[probs > 0] / probs.double().sum()
        u = torch.cat([edges, shares.clamp(max=1 - 2.0**-53)])
        tokens = pick(probs.expand(len(u), -1).contiguous(), u)
        assert (probs[tokens] > 0).all()


def test_one_certain_token_is_drawn_whatever_the_number() -> None:
    logits = torch.full((3, 320), -torch.inf)
    logits[:, 200] = 4.0
    u = torch.tensor([0.0, 0.5, 1 - 2.0**-53], dtype=torch.float64)
    tokens, log_probs = sample(logits, [SamplingParams()] * 3, u)
    assert tokens.tolist() == [200] * 3
    assert log_probs.tolist() == [0.0] * 3


def test_half_precision_logits_are_sampled_in_float() -> None:
    logits = _logits(320, rows=4).bfloat16()
    u = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    tokens, log_probs = sample(logits, [SamplingParams(temperature=0.9)] * 4, u)
    exact = torch.log_softmax(logits.double() / 0.9, -1).gather(1, tokens[:, None])[:, 0]
    assert log_probs.tolist() == pytest.approx(exact.tolist(), abs=1e-5)
