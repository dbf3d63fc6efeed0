"""MaxRL, LUSPO, VESPO and off-policy masking against their equations, written out response by response in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from whet.algos import find_advantage, find_policy_loss
from whet.algos.aggregate import Aggregator, count
from whet.algos.registry import LossInputs, Signals
from whet.config.schema.actor import ActorConfig
from whet.config.schema.algorithm import AlgorithmConfig

# The model's tokens of each response: of different lengths, some with a tool's answer between them.
MASK = np.array([[1, 1, 1, 1, 1], [1, 0, 0, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0]])


def _inputs(spread: float) -> tuple[LossInputs, np.ndarray, np.ndarray, np.ndarray]:
    """A mini-batch in float64, and its current and old log-probs and advantages as arrays."""
    rng = np.random.default_rng(4)
    old = -rng.random(MASK.shape) * 2 - 0.1
    new = old + rng.normal(size=MASK.shape) * spread
    advantages = np.repeat(np.array([1.2, -0.7, 0.4, -1.5, -0.2, 0.9])[:, None], 5, axis=1) * MASK
    given = (torch.tensor(each, dtype=torch.float64) for each in (new, old, advantages, MASK))
    return LossInputs(*given), new, old, advantages


def _run(name: str, inputs: LossInputs, config: ActorConfig, mode: str) -> tuple[float, np.ndarray, dict[str, float]]:
    log_probs = inputs.log_probs_BT.detach().clone().requires_grad_()
    inputs.log_probs_BT = log_probs
    loss, metrics = find_policy_loss(name)(inputs, config, Aggregator(mode, count(inputs.mask_BT, 5)))
    loss.backward()
    return float(loss.detach()), log_probs.grad.numpy(), {key: float(value) for key, value in metrics.items()}


@pytest.mark.parametrize("mode", ["token", "seq"])
def test_luspo(mode: str) -> None:
    inputs, new, old, advantages = _inputs(0.1)
    config = ActorConfig(clip_ratio_low=0.03, clip_ratio_high=0.04)
    loss, grad, _ = _run("luspo", inputs, config, mode)
    expected, slope, clipped = 0.0, np.zeros(MASK.shape), 0
    for i, mask in enumerate(MASK):
        length, A = mask.sum(), advantages[i][0]
        s = math.exp((mask * (new[i] - old[i])).sum() / length)
        best = min(s * A, min(max(s, 0.97), 1.04) * A)
        clipped += best != s * A
        expected -= length * best / len(MASK)
        if best == s * A:  # d s / d log π of each token is s / length
            slope[i] = -A * s * mask / len(MASK)
    assert 0 < clipped < len(MASK)
    assert loss == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(grad, slope, rtol=1e-9)


@pytest.mark.parametrize("spread", [0.0, 0.1, 2.0])
def test_vespo(spread: float) -> None:
    inputs, new, old, advantages = _inputs(spread)
    config = ActorConfig(vespo_positive=(2.0, 3.0), vespo_negative=(3.0, 2.0))
    loss, grad, metrics = _run("vespo", inputs, config, "token")
    phi = np.zeros(len(MASK))
    for i, mask in enumerate(MASK):
        W = math.prod(math.exp(each) for each in (new[i] - old[i])[mask == 1])
        c1, c2 = (2.0, 3.0) if advantages[i][0] >= 0 else (3.0, 2.0)
        phi[i] = W**c1 * math.exp(-c2 * W) / math.exp(-c2)
    assert loss == pytest.approx(-(phi[:, None] * advantages * new * MASK).sum() / MASK.sum(), rel=1e-9)
    np.testing.assert_allclose(grad, -phi[:, None] * advantages * MASK / MASK.sum(), rtol=1e-9, atol=1e-15)
    assert metrics["vespo_weight"] == pytest.approx((phi[:, None] * MASK).sum() / MASK.sum(), rel=1e-5)


def test_vespo_on_policy_is_reinforce_and_far_ratios_count_nothing() -> None:
    inputs, *_ = _inputs(0.0)
    _, on_policy, _ = _run("vespo", inputs, ActorConfig(), "token")
    _, reinforce, _ = _run("gpg", _inputs(0.0)[0], ActorConfig(), "token")
    np.testing.assert_allclose(on_policy, reinforce, rtol=1e-12)
    for far in (-400.0, 400.0):
        inputs.log_probs_BT = inputs.old_log_probs_BT + far
        _, grad, _ = _run("vespo", inputs, ActorConfig(), "token")
        assert np.all(np.isfinite(grad))
        assert np.abs(grad).max() < 1e-12


def test_off_policy_masking() -> None:
    inputs, new, old, advantages = _inputs(0.8)
    delta, low, high, dual = 0.1, 0.2, 0.3, 3.0
    config = ActorConfig(off_policy_delta=delta, clip_ratio_low=low, clip_ratio_high=high, clip_ratio_dual=dual)
    loss, grad, metrics = _run("off_policy_mask", inputs, config, "seq")
    expected, masked, failed = 0.0, 0, 0
    for i, mask in enumerate(MASK):
        inside, A = mask == 1, advantages[i][0]
        far = A < 0 and (old[i] - new[i])[inside].mean() > delta
        masked, failed = masked + far, failed + (A < 0)
        values = []
        for ratio in np.exp((new[i] - old[i])[inside]):
            value = max(-A * ratio, -A * min(max(ratio, 1 - low), 1 + high))
            values.append(0.0 if far else min(value, -A * dual) if A < 0 else value)
        expected += np.mean(values) / len(MASK)
        assert not far or np.all(grad[i] == 0)
    assert 0 < masked < failed
    assert loss == pytest.approx(expected, rel=1e-9)
    assert metrics["off_policy_masked"] > 0


def _maxrl(scores: list[float]) -> list[float]:
    signals = Signals(
        mask_BT=torch.ones(len(scores), 1),
        rewards_BT=torch.tensor(scores)[:, None],
        groups_B=torch.zeros(len(scores), dtype=torch.long),
        old_log_probs_BT=torch.zeros(len(scores), 1),
    )
    return find_advantage("maxrl")(signals, AlgorithmConfig())[0][:, 0].tolist()


def test_maxrl_is_the_mean_of_right_responses_less_the_mean_of_all() -> None:
    n = 8
    for right in range(1, n):
        scores = [1.0] * right + [0.0] * (n - right)
        weights = [(score / right - 1 / n) * n for score in scores]  # 1/K on right ones, −1/n on all, times n
        assert _maxrl(scores) == pytest.approx(weights, rel=1e-6)
    assert _maxrl([0.0] * n) == [0.0] * n
    assert _maxrl([-1.0, -1.0, 0.0]) == [0.0] * 3


def test_maxrl_estimates_the_truncated_likelihood_without_bias() -> None:
    """With θ the log-odds of success, E[mean A_i ∂log π_i/∂θ] = ∂/∂θ Σ_{k < n} (1 − (1 − p)^k)/k, for every p."""
    n = 5
    for p in (0.05, 0.3, 0.8):
        estimate = 0.0
        for right in range(n + 1):  # ∂log π/∂θ is 1 − p where right and −p where wrong
            chance = math.comb(n, right) * p**right * (1 - p) ** (n - right)
            A = _maxrl([1.0] * right + [0.0] * (n - right))
            estimate += chance * sum(a * ((1 - p) if i < right else -p) for i, a in enumerate(A)) / n
        exact = sum((1 - p) ** (k - 1) for k in range(1, n)) * p * (1 - p)  # dp/dθ = p(1 − p)
        assert estimate == pytest.approx(exact, rel=1e-6)
