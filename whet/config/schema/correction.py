"""`algorithm.rollout_correction.*`: what to do where the sampler's probabilities are not the learner's.

`algorithm.rollout_correction=NAME` takes a preset; keys given beside it win over the preset's. The texts of rules and
thresholds are read here, so that a mistake is found before anything runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from whet.config.keys import Bounds, key
from whet.config.problems import hint
from whet.config.values import FLOAT
from whet.errors import UserError

SECTION = "algorithm.rollout_correction"
RULES = (
    *("token_k1", "token_k2", "token_k3"),
    *("seq_sum_k1", "seq_sum_k2", "seq_sum_k3"),
    *("seq_mean_k1", "seq_mean_k2", "seq_mean_k3"),
    *("seq_max_k2", "seq_max_k3"),
)

_TOKEN, _SEQUENCE = {"rollout_is": "token"}, {"rollout_is": "sequence"}
_ICEPOP = {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}
_GEO = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.999_1.001"}
_K3 = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": "0.01"}
_CLIP, _REINFORCE = {"bypass_mode": True}, {"bypass_mode": True, "loss_type": "reinforce"}

PRESETS: dict[str, dict[str, Any]] = {
    "disabled": {},  # diagnostics only
    "decoupled_token_is": _TOKEN,
    "decoupled_seq_is": _SEQUENCE,
    "decoupled_token_icepop": _ICEPOP,
    "decoupled_seq_is_rs": _SEQUENCE | {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.5_2.0"},
    "decoupled_geo_rs": _GEO,
    "decoupled_geo_rs_seq_tis": _GEO | _SEQUENCE,
    "decoupled_geo_rs_token_tis": _GEO | _TOKEN,
    "decoupled_k3_rs": _K3,
    "decoupled_k3_rs_seq_tis": _K3 | _SEQUENCE,
    "decoupled_k3_rs_token_tis": _K3 | _TOKEN,
    "bypass_ppo_clip": _CLIP,
    "bypass_ppo_clip_geo_rs": _CLIP | _GEO,
    "bypass_ppo_clip_k3_rs": _CLIP | _K3,
    "bypass_pg_is": _REINFORCE | _SEQUENCE,
    "bypass_pg_token_icepop": _REINFORCE | _ICEPOP,
    "bypass_pg_geo_rs": _REINFORCE | _GEO,
    "bypass_pg_geo_rs_seq_tis": _REINFORCE | _GEO | _SEQUENCE,
    "bypass_pg_geo_rs_token_tis": _REINFORCE | _GEO | _TOKEN,
}


@dataclass(frozen=True)
class RolloutCorrectionConfig:
    """Importance weights and rejection for tokens that the learner finds more or less likely than the sampler did."""

    preset: str | None = key(None, "settings by name; null = no correction", choices=tuple(PRESETS))
    rollout_is: str | None = key(
        None, "weigh each token by its ratio, or by its response's; null = no weights", choices=("token", "sequence")
    )
    rollout_is_threshold: Bounds = key(
        "2.0", "weights are cut at this; two numbers such as 0.5_5.0 set weights outside them to 0 (IcePop)"
    )
    rollout_is_batch_normalize: bool = key(False, "divide weights by their mean over the batch")
    rollout_rs: str | None = key(
        None, "rules that reject, with commas: token_k1..3, seq_sum_k1..3, seq_mean_k1..3, seq_max_k2..3"
    )
    rollout_rs_threshold: Bounds | None = key(
        None, "what is kept: up to this (k2, k3), or ratios between two numbers such as 0.5_2.0 (k1)"
    )
    bypass_mode: bool = key(False, "the sampler's log-probs are the old ones; correct with the current policy's")
    loss_type: str = key("ppo_clip", "the policy loss of bypass_mode", choices=("ppo_clip", "reinforce"))

    @property
    def active(self) -> bool:
        """True if there is anything to compute, diagnostics included."""
        return bool(self.preset or self.rollout_is or self.rollout_rs or self.bypass_mode)


@dataclass(frozen=True, slots=True)
class Interval:
    """Closed interval from `low` to `high`; `is_pair` when both were given."""

    low: float
    high: float
    is_pair: bool

    def log(self) -> Interval:
        """The interval of the logarithms."""
        return Interval(math.log(self.low), math.log(self.high), self.is_pair)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rejection rule: `token_k1` looks at tokens, `seq_mean_k3` at the mean over a response."""

    name: str
    keep: Interval  # of the ratio itself for k1, of the divergence for k2 and k3

    @property
    def over(self) -> str:
        """Unit of a decision: token, or the sum, mean or max over a response."""
        return self.name.removeprefix("seq_").rpartition("_")[0]

    @property
    def measure(self) -> str:
        """k1, k2 or k3."""
        return self.name.rpartition("_")[2]


def weight_bounds(config: RolloutCorrectionConfig) -> Interval:
    """The bounds of importance weights; one number is the upper one, with its inverse as the lower."""
    return _interval(f"{SECTION}.rollout_is_threshold", config.rollout_is_threshold)


def rejection_rules(config: RolloutCorrectionConfig) -> list[Rule]:
    """The rules that `rollout_rs` lists, each once, with their thresholds."""
    if config.rollout_rs is None:
        return []
    name_key, threshold_key = f"{SECTION}.rollout_rs", f"{SECTION}.rollout_rs_threshold"
    names = [name.strip() for name in config.rollout_rs.split(",")]
    for name in names:
        if name not in RULES:
            close = hint(name, RULES) or f" (there are {', '.join(RULES)})"
            raise UserError(f"{name_key}={config.rollout_rs}: there is no rule {name or 'without a name'}{close}")
    if config.rollout_rs_threshold is None:
        raise UserError(f"{threshold_key} is not set, but {name_key}={config.rollout_rs} needs one")
    texts = [text.strip() for text in config.rollout_rs_threshold.split(",")]
    if len(texts) not in (1, len(names)):
        raise UserError(
            f"{threshold_key}={config.rollout_rs_threshold}: {len(texts)} thresholds for {len(names)} rules "
            f"({config.rollout_rs}); give one, or one for each"
        )
    if len(texts) == 1:
        texts *= len(names)
    rules: dict[str, Rule] = {}
    for name, text in zip(names, texts):
        keep = _interval(threshold_key, text)
        if not keep.is_pair and name.endswith("k1") and keep.high < 1:
            raise UserError(f"{threshold_key}={text}: {name} keeps ratios from 1/u to u, so u is at least 1")
        if keep.is_pair and not name.endswith("k1"):
            raise UserError(f"{threshold_key}={text}: {name} is kept up to one number; two belong to k1 rules")
        rules.setdefault(name, Rule(name, keep))
    return list(rules.values())


def _interval(name: str, text: str) -> Interval:
    parts = text.strip().split("_")
    if len(parts) > 2 or not all(FLOAT.fullmatch(part) for part in parts):
        raise UserError(f"{name}={text}: expected a number, or two such as 0.5_2.0")
    numbers = [float(part) for part in parts]
    if min(numbers) <= 0:
        raise UserError(f"{name}={text}: must be above 0")
    if len(numbers) == 1:
        return Interval(1 / numbers[0], numbers[0], is_pair=False)
    if numbers[0] > numbers[1]:
        raise UserError(f"{name}={text}: the first number must not be above the second")
    return Interval(numbers[0], numbers[1], is_pair=True)
