"""The whole correction of a batch: weights, rejected tokens, and what there is to know about both.

Engines compute probabilities in other kernels, precisions or with older weights than the learner, so the tokens are
drawn from π_roll and trained as if from π_train. With x = log π_train − log π_roll the ratio e^x corrects for it as an
importance weight (truncated: Yao et al., 2025; IcePop: Ling Team, 2025), and responses whose ratio or divergence is
out of bounds can be left out (rejection: Liu et al., 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whet.algos.correction.diagnostics import off_policy_metrics
from whet.algos.correction.rejection import reject
from whet.algos.correction.weights import importance_weights
from whet.algos.quirks import quirks
from whet.config.correction import rejection_rules
from whet.config.schema.correction import RolloutCorrectionConfig

PREFIX = "rollout_corr/"


@dataclass(frozen=True, slots=True)
class Correction:
    """Corrected mask and importance weights of a batch."""

    mask_BT: Tensor  # what is left after rejection
    weights_BT: Tensor | None  # importance weights, 0 outside the original mask; None where none are wanted
    metrics: dict[str, float]


@torch.no_grad()
def correct(
    train_log_probs_BT: Tensor,
    rollout_log_probs_BT: Tensor,
    mask_BT: Tensor,
    config: RolloutCorrectionConfig,
    match: str = "whet",
) -> Correction:
    """Compare the learner's log-probs with the sampler's under the mask, as `algorithm.rollout_correction` says."""
    inside = mask_BT.bool()
    train_BT, rollout_BT = (
        torch.where(inside, values.float(), 0.0) for values in (train_log_probs_BT, rollout_log_probs_BT)
    )
    log_ratio_BT, mask_BT = train_BT - rollout_BT, mask_BT.float()
    metrics: dict[str, float] = {}
    if not inside.any():
        return Correction(mask_BT, torch.zeros_like(mask_BT) if config.rollout_is else None, metrics)
    weights_BT = None
    if config.rollout_is is not None:
        weights_BT, found = importance_weights(log_ratio_BT, mask_BT, config)
        metrics |= found
    rules = rejection_rules(config)
    kept_BT = mask_BT
    if rules:
        kept_BT, found = reject(log_ratio_BT, mask_BT, rules, quirks(match).k1_bounds_inverse_ratio)
        metrics |= found
    metrics |= off_policy_metrics(train_BT, rollout_BT, mask_BT)
    return Correction(kept_BT, weights_BT, {f"{PREFIX}{name}": value for name, value in metrics.items()})
