"""Rules and thresholds of `algorithm.rollout_correction.*`, read from their texts.

The checks of a config read them too, so that a mistake is found before anything runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whet.config.problems import hint
from whet.config.schema.correction import RolloutCorrectionConfig
from whet.config.values import FLOAT
from whet.errors import UserError

SECTION = "algorithm.rollout_correction"
RULES = (
    *("token_k1", "token_k2", "token_k3"),
    *("seq_sum_k1", "seq_sum_k2", "seq_sum_k3"),
    *("seq_mean_k1", "seq_mean_k2", "seq_mean_k3"),
    *("seq_max_k2", "seq_max_k3"),
)


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
