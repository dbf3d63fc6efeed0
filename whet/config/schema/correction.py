"""`algorithm.rollout_correction.*`: what to do where the sampler's probabilities are not the learner's.

`algorithm.rollout_correction=NAME` takes a preset; keys given beside it win over the preset's. `config/correction.py`
reads the texts of rules and thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whet.config.keys import Bounds, key

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
