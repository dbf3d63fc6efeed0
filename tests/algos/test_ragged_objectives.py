"""PRIME, SPPO, GPG and VESPO on random ragged batches, written out in float64.

Responses may be empty or have a tool's tokens inside; groups may have one response or equal scores.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from whet.algos import find_advantage, find_policy_loss
from whet.algos.aggregate import Aggregator, count
from whet.algos.registry import LossInputs, Signals
from whet.config.schema.actor import ActorConfig
from whet.config.schema.algorithm import AlgorithmConfig, PrimeConfig

SEEDS = range(12)


def _batch(seed: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray, np.ndarray]:
    """Masks (B, T), groups and scores (B,): at least one empty response, one group of one and one of equal scores."""
    rng = np.random.default_rng(seed)
    groups = np.array([0, 1, 1, 1, 2, 2, *rng.integers(3, 6, size=6)])
    mask = (rng.random((12, 7)) < 0.6).astype(float)
    mask[rng.integers(12)] = 0.0
    scores = rng.integers(0, 3, size=12) / 2
    scores[groups == 2] = 0.5
    scores[1:3] = [0.0, 1.0]
    order = rng.permutation(12)
    return rng, mask[order], groups[order], scores[order]


def _signals(mask: np.ndarray, groups: np.ndarray, scores: np.ndarray) -> Signals:
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    for row, score in enumerate(scores):
        rewards[row, max(np.flatnonzero(mask[row]), default=0)] = score
    return Signals(torch.tensor(mask), rewards, torch.tensor(groups), torch.zeros(mask.shape))


@pytest.mark.parametrize("seed", SEEDS)
def test_gpg(seed: int) -> None:
    _, mask, groups, scores = _batch(seed)
    ours, _ = find_advantage("gpg")(_signals(mask, groups, scores), AlgorithmConfig())
    rows = [scores[groups == group] for group in groups]
    telling = sum(len(set(row)) > 1 for row in rows)
    expected = [len(scores) / telling * (score - row.mean()) for score, row in zip(scores, rows)]
    np.testing.assert_allclose(ours.numpy(), np.array(expected)[:, None] * mask, rtol=1e-6, atol=1e-7)
    assert torch.all(ours[[len(set(row)) == 1 for row in rows]] == 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_sppo(seed: int) -> None:
    _, mask, groups, scores = _batch(seed)
    ours, _ = find_advantage("sppo")(_signals(mask, groups, scores), AlgorithmConfig())
    for row, score in enumerate(scores):
        rivals = scores[groups == groups[row]]
        wins = sum(1.0 if score > rival else 0.5 if score == rival else 0.0 for rival in rivals)
        np.testing.assert_allclose(ours[row].numpy(), (wins / len(rivals) - 0.5) * mask[row], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("gamma", "norm"), [(1.0, "none"), (0.8, "batch_norm")])
def test_prime(gamma: float, norm: str, seed: int) -> None:
    rng, mask, groups, scores = _batch(seed)
    rewards = rng.normal(size=mask.shape) * mask
    signals = _signals(mask, groups, scores)
    signals.process_rewards_BT = torch.tensor(np.where(mask == 1, rewards, math.nan))
    config = AlgorithmConfig(gamma=gamma, prime=PrimeConfig(norm=norm, coef=0.7))
    ours, returns = find_advantage("prime")(signals, config)
    if norm == "batch_norm":
        rewards = rewards / (max(abs(rewards[:, t:].sum(axis=1)).max() for t in range(mask.shape[1])) + 1e-6)
    means = rewards.sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
    raw = np.zeros(mask.shape)
    for row in range(len(mask)):
        n, later = (groups == groups[row]).sum(), 0.0
        for t in reversed(np.flatnonzero(mask[row]) if n > 1 else []):
            others = (groups == groups[row]) & (np.arange(len(groups)) != row)
            later = (rewards[row, t] * n - means[groups == groups[row]].sum()) / (n - 1) + gamma * later
            raw[row, t] = 0.7 * later + scores[row] - scores[others].mean()
    np.testing.assert_allclose(returns.numpy(), raw, rtol=1e-5, atol=1e-6)
    inside = raw[mask == 1]
    expected = (raw - inside.mean()) / math.sqrt(inside.var(ddof=1) + 1e-8) * mask
    expected[[(groups == group).sum() == 1 for group in groups]] = 0.0
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_vespo_under_a_correction(seed: int) -> None:
    """Importance weights, 0 where IcePop cut them out, are factors of the response's ratio and not of its loss."""
    rng, mask, _, scores = _batch(seed)
    old = -rng.random(mask.shape)
    new, weights = old + rng.normal(size=mask.shape) * 0.2, np.exp(rng.normal(size=mask.shape) * 0.2)
    weights[0, 2] = 0.0
    advantages = (scores - 0.5)[:, None] * mask
    log_probs = torch.tensor(new, requires_grad=True)
    inputs = LossInputs(log_probs, *(torch.tensor(each) for each in (old, advantages, mask, weights)))
    loss, _ = find_policy_loss("vespo")(inputs, ActorConfig(), Aggregator("token", count(inputs.mask_BT, 7)))
    loss.backward()
    expected = np.zeros(mask.shape)
    for row, inside in enumerate(mask == 1):
        ratios = np.exp(new[row] - old[row]) * np.maximum(weights[row], 1e-8)
        W = math.prod(ratios[inside])
        c1, c2 = (2.0, 3.0) if scores[row] >= 0.5 else (3.0, 2.0)
        expected[row] = -(W**c1) * math.exp(c2 * (1 - W)) * advantages[row] / mask.sum()
    np.testing.assert_allclose(log_probs.grad.numpy(), expected, rtol=1e-6, atol=1e-12)
