"""Coefficients that follow a measurement from step to step: that of the KL term, and that of the entropy bonus.

A controller's `value` is all it remembers, so a checkpoint holds one number for each.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.config.schema.actor import AdaptiveEntropyConfig
from whet.config.schema.algorithm import AlgorithmConfig


@dataclass(slots=True)
class FixedKL:
    """β stays what the config says."""

    value: float

    def update(self, kl: float, samples: int) -> None:
        """Nothing to learn from a measurement."""


@dataclass(slots=True)
class AdaptiveKL:
    """β ← β · (1 + clip(KL/target − 1, ±0.2) · samples/horizon)   (Ziegler et al., 2019, arXiv:1909.08593)."""

    value: float
    target: float
    horizon: float

    def update(self, kl: float, samples: int) -> None:
        """Raise β where the policy drifted further than the target, lower it where it stayed closer."""
        error = min(max(kl / self.target - 1.0, -0.2), 0.2)
        self.value *= 1.0 + error * samples / self.horizon


@dataclass(slots=True)
class FixedEntropy:
    """The bonus stays what the config says."""

    value: float
    enabled: bool = True

    def coefficient(self, entropy: float) -> float:
        """Return the coefficient for a batch with this entropy."""
        return self.value

    def update(self, entropy: float) -> None:
        """Nothing to learn from a measurement."""


@dataclass(slots=True)
class AdaptiveEntropy:
    """A bonus only while entropy is below its target   (He et al., 2025, Skywork-OR1, arXiv:2505.22312).

        α_k = c_k · 1[e_k < target],   c_{k+1} = clip(c_k + δ if e_k < target else c_k − δ, min, max)

    e_k is the entropy of the batch before its update, the mean of −log π of its tokens. OR1's code switches α_k by
    e_{k−1}; `lags` does the same.
    """

    value: float
    target: float
    delta: float
    least: float
    most: float
    lags: bool = False
    enabled: bool = True  # whether the latest entropy was below the target

    def coefficient(self, entropy: float) -> float:
        """Return the coefficient for a batch with this entropy."""
        below = self.enabled if self.lags else entropy < self.target
        return self.value if below else 0.0

    def update(self, entropy: float) -> None:
        """Move c by one δ towards more or less entropy."""
        self.enabled = entropy < self.target
        moved = self.value + (self.delta if self.enabled else -self.delta)
        self.value = min(max(moved, self.least), self.most)


def kl_controller(config: AlgorithmConfig) -> FixedKL | AdaptiveKL:
    """The controller that `algorithm.kl_type` names."""
    if config.kl_type == "adaptive":
        return AdaptiveKL(config.kl_coef, config.kl_target, config.kl_horizon)
    return FixedKL(config.kl_coef)


def entropy_controller(initial: float, config: AdaptiveEntropyConfig, lags: bool) -> FixedEntropy | AdaptiveEntropy:
    """The controller of the entropy bonus, which starts at `initial`."""
    if not config.enabled:
        return FixedEntropy(initial)
    return AdaptiveEntropy(
        initial, config.target_entropy, config.delta_ent_coef, config.min_ent_coef, config.max_ent_coef, lags
    )
