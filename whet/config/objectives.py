"""Settings that come with the name of an objective: those of its authors, where whet's defaults are others.

They lie under everything that a user gives: defaults < these < `config=FILE` < `key=value`. `algorithm.match` asks for
another system's numbers, which has defaults of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from whet.config.loading.layer import Layer
from whet.config.values import Given

_LOW, _HIGH, _MEAN = "worker.actor.clip_ratio_low", "worker.actor.clip_ratio_high", "worker.actor.loss_avg_mode"
_GSPO = {_LOW: 3e-4, _HIGH: 4e-4, _MEAN: "seq"}

# By the key that names the objective; of two that set the same key the later one wins.
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "algorithm.adv_estimator": {
        "dr_grpo": {_MEAN: "seq-mean-token-sum-norm"},
        "gigpo": {"algorithm.gamma": 0.95},
    },
    "worker.actor.loss_type": {
        "cispo": {_LOW: 1.0, _HIGH: 4.0},  # MiniMax gives no number; those of ScaleRL (Khatri et al., 2025)
        "clip_cov": {_LOW: 1.0, _HIGH: 1.0},
        "dppo_kl": {_LOW: 0.05, _HIGH: 0.05},
        "dppo_tv": {_LOW: 0.15, _HIGH: 0.15},
        "flowrl": {_HIGH: 0.2},
        "geo_mean": {_LOW: 0.4, _HIGH: 0.4, _MEAN: "seq"},
        "gspo": _GSPO,
        "gspo_token": _GSPO,
        "luspo": {_LOW: 2e-3, _HIGH: 2.5e-3},
        "sapo": {_MEAN: "seq"},
    },
}


def objective_settings(value_of: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings of the objectives that a config names; `value_of` gives its value of a key, or None."""
    found: dict[str, Any] = {}
    if value_of("algorithm.match") in (None, "whet"):
        for key, by_name in SETTINGS.items():
            name = value_of(key)
            found |= by_name.get(name, {}) if isinstance(name, str) else {}
    return found


def objective_layer(layers: Sequence[Layer]) -> Layer:
    """Return the settings of the objectives that these layers name, to be put under all of them."""

    def value_of(key: str) -> Any:
        return next((layer[key].value for layer in reversed(layers) if key in layer), None)

    found = Layer()
    found |= {key: Given(key, value, " (its objective's)") for key, value in objective_settings(value_of).items()}
    return found
