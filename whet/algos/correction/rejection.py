"""Rules that leave tokens or whole responses out of the update.

With x = log π_train − log π_roll, clamped to ±20, a token's divergence is k1 = x, k2 = x²/2 or k3 = e^x − 1 − x
(Schulman, 2020). `token_*` decides for each token; `seq_sum_*`, `seq_mean_*`, `seq_max_*` for a response by the sum,
mean or largest of its tokens. k1 keeps ratios π_train/π_roll within [l, u]: log l ≤ k1 ≤ log u (one number u stands
for [1/u, u]). k2 and k3 keep what is at most u. What every rule keeps is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.correction.statistics import masked_mean, masked_std, row_means, row_spread
from whet.algos.correction.weights import LIMIT
from whet.config.correction import Interval, Rule


def reject(
    log_ratio_BT: Tensor, mask_BT: Tensor, rules: list[Rule], inverse_ratio: bool
) -> tuple[Tensor, dict[str, float]]:
    """The mask of what all rules keep, and metrics of each rule and of all together.

    With `inverse_ratio` the bounds of k1 apply to π_roll/π_train, as they do in verl.
    """
    x = log_ratio_BT.clamp(-LIMIT, LIMIT)
    measures = {"k1": -x if inverse_ratio else x, "k2": 0.5 * x.square(), "k3": x.exp() - 1 - x}
    kept_BT, metrics = mask_BT, dict[str, float]()
    for rule in rules:
        statistic_BT = _over(measures[rule.measure], mask_BT, rule.over)
        # k2 and k3 are never negative but for rounding, which must not reject
        limits = rule.keep.log() if rule.measure == "k1" else Interval(-1.0, rule.keep.high, is_pair=False)
        keep_BT = (statistic_BT >= limits.low) & (statistic_BT <= limits.high)
        found = _metrics(statistic_BT, mask_BT, rule, limits) | _masked(mask_BT * keep_BT, mask_BT)
        metrics |= {f"rollout_rs_{rule.name}_{name}": value for name, value in found.items()}
        kept_BT = kept_BT * keep_BT
    return kept_BT, metrics | {f"rollout_rs_{name}": value for name, value in _masked(kept_BT, mask_BT).items()}


def _over(measure_BT: Tensor, mask_BT: Tensor, over: str) -> Tensor:
    """The number that decides about each token: its own, or its response's."""
    if over == "token":
        return measure_BT
    masked_BT = measure_BT * mask_BT
    if over == "max":  # of k2 and k3, which are nowhere below the 0 outside the mask
        row_B1 = masked_BT.amax(dim=1, keepdim=True)
    else:
        row_B1 = masked_BT.sum(dim=1, keepdim=True)
    if over == "mean":
        row_B1 = row_B1 / (mask_BT.sum(dim=1, keepdim=True) + 1e-8)
    return row_B1.expand_as(measure_BT)


def _metrics(statistic_BT: Tensor, mask_BT: Tensor, rule: Rule, limits: Interval) -> dict[str, float]:
    inside = mask_BT.bool()
    if rule.over == "token":
        units = statistic_BT[inside]
    else:
        units = statistic_BT[inside.any(dim=1), 0]
    has_low = rule.measure == "k1"
    means = row_means(statistic_BT, mask_BT)
    metrics = {
        "mean": masked_mean(statistic_BT, mask_BT),
        "max": units.max(),
        "min": units.min(),
        "std": masked_std(statistic_BT.clamp(limits.low, limits.high), mask_BT),
        "fraction_high": (units > limits.high).float().mean(),
        "fraction_low": (units < limits.low).float().mean() if has_low else torch.zeros(()),
        **row_spread(means, centre=0.0),
        "seq_fraction_high": (means > limits.high).float().mean(),
    }
    if has_low:
        metrics["seq_fraction_low"] = (means < limits.low).float().mean()
    return {name: float(value) for name, value in metrics.items()}


def _masked(kept_BT: Tensor, mask_BT: Tensor) -> dict[str, float]:
    """Shares of tokens, and of responses with any token, that were left out."""
    lost_BT = mask_BT - kept_BT
    present_B = mask_BT.any(dim=1)
    return {
        "masked_fraction": float(masked_mean(lost_BT, mask_BT)),
        "seq_masked_fraction": float(lost_BT.any(dim=1)[present_B].float().mean()),
    }
