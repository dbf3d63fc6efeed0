"""Metrics of the difference between the sampler's policy and the learner's, with or without correction."""

from __future__ import annotations

from torch import Tensor

from whet.algos.correction.statistics import masked_mean, row_means
from whet.algos.correction.weights import LIMIT


def off_policy_metrics(train_BT: Tensor, rollout_BT: Tensor, mask_BT: Tensor) -> dict[str, float]:
    """Perplexities of both, KL(π_roll ‖ π_train) by k1 and k3, and χ² divergences of tokens and responses."""
    x = train_BT - rollout_BT
    train_B, rollout_B = row_means(train_BT, mask_BT), row_means(rollout_BT, mask_BT)
    gap_B = rollout_B - train_B
    sums_B = x.sum(dim=1)[mask_BT.any(dim=1)]
    metrics = {
        "training_ppl": (-train_B).exp().mean(),
        "training_log_ppl": -train_B.mean(),
        "rollout_ppl": (-rollout_B).exp().mean(),
        "rollout_log_ppl": -rollout_B.mean(),
        "kl": masked_mean(-x, mask_BT),
        "k3_kl": masked_mean(x.exp() - x - 1, mask_BT),
        "log_ppl_diff": gap_B.mean(),
        "log_ppl_abs_diff": gap_B.abs().mean(),
        "log_ppl_diff_max": gap_B.max(),
        "log_ppl_diff_min": gap_B.min(),
        "ppl_ratio": gap_B.exp().mean(),
        "chi2_token": masked_mean((2 * x.clamp(-LIMIT, LIMIT)).exp(), mask_BT) - 1,
        "chi2_seq": (2 * sums_B.clamp(-LIMIT, LIMIT)).exp().mean() - 1,
    }
    return {name: float(value) for name, value in metrics.items()}
