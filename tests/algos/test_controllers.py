"""Controllers of coefficients: the originals' trajectories, and what they do at their limits."""

from __future__ import annotations

import pytest
from algos.golden import read

from whet.algos.controllers import (
    AdaptiveEntropy,
    AdaptiveKL,
    FixedEntropy,
    FixedKL,
    entropy_controller,
    kl_controller,
)
from whet.config.schema.actor import AdaptiveEntropyConfig
from whet.config.schema.algorithm import AlgorithmConfig


def test_adaptive_kl_follows_the_original():
    controller = AdaptiveKL(value=0.01, target=0.1, horizon=10000)
    for kl, expected in read("forks.json")["adaptive_kl"]:
        controller.update(kl, 512)
        assert controller.value == pytest.approx(expected, abs=1e-12)


def test_adaptive_entropy_follows_the_original():
    controller = AdaptiveEntropy(value=0.0, target=0.2, delta=1e-4, least=0.0, most=0.005)
    for entropy, coefficient, enabled in read("forks.json")["or1.entctrl"]:
        controller.update(entropy)
        assert controller.value == pytest.approx(coefficient, abs=1e-12)
        assert controller.enabled == bool(enabled)


def test_the_bonus_is_switched_by_the_batch_at_hand_and_by_the_one_before_where_it_lags():
    prompt = AdaptiveEntropy(value=0.003, target=0.2, delta=0.001, least=0.0, most=0.005)
    lagging = AdaptiveEntropy(value=0.003, target=0.2, delta=0.001, least=0.0, most=0.005, lags=True)
    assert (prompt.coefficient(0.5), lagging.coefficient(0.5)) == (0.0, 0.003)
    for controller in (prompt, lagging):
        controller.update(0.5)
    assert (prompt.coefficient(0.1), lagging.coefficient(0.1)) == (0.002, 0.0)


def test_coefficients_stay_within_their_limits():
    controller = AdaptiveEntropy(value=0.0, target=0.2, delta=0.001, least=0.0, most=0.0025)
    for _ in range(5):
        controller.update(0.1)
    assert controller.value == 0.0025
    for _ in range(5):
        controller.update(0.9)
    assert controller.value == 0.0


def test_the_config_chooses():
    assert isinstance(kl_controller(AlgorithmConfig()), FixedKL)
    adaptive = kl_controller(AlgorithmConfig(kl_type="adaptive", kl_coef=0.5, kl_target=0.2, kl_horizon=100))
    assert adaptive == AdaptiveKL(0.5, 0.2, 100)
    assert entropy_controller(0.01, AdaptiveEntropyConfig(), lags=False) == FixedEntropy(0.01)
    assert FixedEntropy(0.01).coefficient(9.0) == 0.01
    chosen = entropy_controller(0.01, AdaptiveEntropyConfig(enabled=True, target_entropy=0.3), lags=True)
    assert chosen == AdaptiveEntropy(0.01, 0.3, 0.001, 0.0, 0.5, lags=True)
