"""Importance weights π_train/π_roll of tokens, or of whole responses: truncated, cut out, normalised.

w = e^x for a token, e^{Σx} for every token of a response, x clamped to ±20. One threshold u truncates: min(w, u). Two,
l and u, set w outside [l, u] to 0 and leave the token counted (IcePop).
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.correction.statistics import masked_mean, masked_std, row_means, row_spread
from whet.config.correction import Interval, weight_bounds
from whet.config.schema.correction import RolloutCorrectionConfig

LIMIT = 20.0  # log-ratios beyond this are as good as infinite


def importance_weights(
    log_ratio_BT: Tensor, mask_BT: Tensor, config: RolloutCorrectionConfig
) -> tuple[Tensor, dict[str, float]]:
    """Weights (B, T), 0 outside the mask, and their metrics."""
    bounds = weight_bounds(config)
    log_weights_BT = log_ratio_BT
    if config.rollout_is == "sequence":
        log_weights_BT = log_ratio_BT.sum(dim=1, keepdim=True).expand_as(log_ratio_BT)
    raw_BT = log_weights_BT.clamp(-LIMIT, LIMIT).exp() * mask_BT
    if bounds.is_pair:
        weights_BT = torch.where((raw_BT >= bounds.low) & (raw_BT <= bounds.high), raw_BT, 0.0)
    else:
        weights_BT = raw_BT.clamp(max=bounds.high)
    by_sequence = config.rollout_is == "sequence"
    metrics = _metrics(weights_BT, raw_BT, log_weights_BT if by_sequence else None, mask_BT, bounds)
    if config.rollout_is_batch_normalize:
        mean = row_means(weights_BT, mask_BT).mean() if by_sequence else weights_BT.sum() / mask_BT.sum()
        if mean > 1e-8:
            weights_BT = weights_BT / mean
            metrics["rollout_is_batch_norm_factor"] = float(mean)
    return weights_BT, metrics


def _metrics(
    weights_BT: Tensor, raw_BT: Tensor, log_sums_BT: Tensor | None, mask_BT: Tensor, bounds: Interval
) -> dict[str, float]:
    """Weights as they are applied; how many were out of bounds, as they were before."""
    inside = mask_BT.bool()
    above_BT, below_BT = raw_BT > bounds.high, raw_BT < bounds.low
    if log_sums_BT is None:
        high, low = masked_mean(above_BT, mask_BT), masked_mean(below_BT, mask_BT)
        largest, smallest = weights_BT[inside].max(), weights_BT[inside].min()
    else:
        sums_B = log_sums_BT[inside.any(dim=1), 0]
        limits = bounds.log()
        high, low = (sums_B > limits.high).float().mean(), (sums_B < limits.low).float().mean()
        largest, smallest = sums_B.max().clamp(max=LIMIT).exp(), sums_B.min().exp()
    bounded_BT = weights_BT.clamp(0.0, bounds.high)
    mean = masked_mean(bounded_BT, mask_BT)
    effective = 1 / masked_mean((bounded_BT / (mean + 1e-8)).square(), mask_BT)
    raw_B = row_means(raw_BT, mask_BT)
    metrics = {
        "mean": masked_mean(weights_BT, mask_BT),
        "max": largest,
        "min": smallest,
        "std": masked_std(bounded_BT, mask_BT),
        "eff_sample_size": effective,
        "ratio_fraction_high": high,
        "ratio_fraction_low": low,
        **row_spread(row_means(weights_BT, mask_BT), centre=1.0),
        "seq_fraction_high": (raw_B > bounds.high).float().mean(),
        "seq_fraction_low": (raw_B < bounds.low).float().mean(),
    }
    if bounds.is_pair:
        metrics["oob_ratio"] = masked_mean(above_BT | below_BT, mask_BT)
    return {f"rollout_is_{name}": float(value) for name, value in metrics.items()}
