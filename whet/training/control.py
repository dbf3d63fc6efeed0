"""The coefficients of a step: fixed by the config, or moved from step to step by what was measured."""

from __future__ import annotations

import math
from typing import Any

from whet.algos.controllers import AdaptiveEntropy, AdaptiveKL, entropy_controller, kl_controller
from whet.algos.quirks import quirks
from whet.config import Config
from whet.training.experience import Experience, needs_reference
from whet.training.objective import Coefficients


class Control:
    """One controller for the KL term and one for the entropy bonus."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._kl = kl_controller(config.algorithm)
        self._entropy = _entropy_controller(config)

    def enter(self, config: Config) -> None:
        """Go on under a stage's config; a controller starts anew only where the stage sets it otherwise."""
        before, self._config = self._config, config
        if _kl_settings(before) != _kl_settings(config):
            self._kl = kl_controller(config.algorithm)
        if _entropy_settings(before) != _entropy_settings(config):
            self._entropy = _entropy_controller(config)

    @property
    def kl(self) -> float:
        """The KL coefficient of the next step."""
        return self._kl.value

    def coefficients(self, experience: Experience) -> Coefficients:
        """Return the coefficients of the loss's terms for this experience."""
        return Coefficients(self._kl.value, self._entropy.coefficient(experience.sampled_entropy()))

    def observe(self, experience: Experience, used: Coefficients, metrics: dict[str, float]) -> dict[str, float]:
        """Learn from a step that is done; returns the coefficients that it had, as metrics."""
        kl = metrics.get("actor/reward_kl", metrics.get("actor/kl_loss"))
        if kl is not None and math.isfinite(kl):  # a controller that took NaN would keep it for ever
            self._kl.update(kl, len(experience.samples))
        if math.isfinite(entropy := experience.sampled_entropy()):
            self._entropy.update(entropy)
        actor = self._config.worker.actor
        shown = {"actor/kl_coef": used.kl} if needs_reference(self._config.algorithm) else {}
        if actor.adaptive_entropy.enabled or actor.entropy_coeff:
            shown["actor/entropy_coef"] = used.entropy
        if self._config.algorithm.use_entropy_penalty:
            shown["actor/entropy_penalty_coef"] = self._config.algorithm.entropy_penalty_coef
        return shown

    def state_dict(self) -> dict[str, Any]:
        """Return the state of adaptive controllers; a fixed coefficient is the config's."""
        state: dict[str, Any] = {}
        if isinstance(self._kl, AdaptiveKL):
            state["kl"] = self._kl.value
        if isinstance(self._entropy, AdaptiveEntropy):
            state["entropy"] = [self._entropy.value, self._entropy.enabled]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`, as far as the config still asks for it."""
        if isinstance(self._kl, AdaptiveKL) and "kl" in state:
            self._kl.value = state["kl"]
        if isinstance(self._entropy, AdaptiveEntropy) and "entropy" in state:
            self._entropy.value, self._entropy.enabled = state["entropy"]


def _entropy_controller(config: Config) -> Any:
    actor = config.worker.actor
    lags = quirks(config.algorithm.match).entropy_bonus_lags
    return entropy_controller(actor.entropy_coeff, actor.adaptive_entropy, lags)


def _kl_settings(config: Config) -> tuple[object, ...]:
    algorithm = config.algorithm
    return algorithm.kl_coef, algorithm.kl_type, algorithm.kl_target, algorithm.kl_horizon


def _entropy_settings(config: Config) -> tuple[object, ...]:
    return config.worker.actor.entropy_coeff, config.worker.actor.adaptive_entropy
