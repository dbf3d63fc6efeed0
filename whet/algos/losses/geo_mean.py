"""GMPO: the geometric mean of a response's ratios, each clipped by itself (Zhao et al., 2025).

With d = log π/π_old and d̂ = clip(d, −ε_low, ε_high), each token takes the less favourable of the two for sign(A);
L_i = −Ā_i·exp(mean_t d̃_t) on every token of response i. One outlier moves a geometric mean less than an arithmetic one.
The bounds are on the log-ratio (the paper uses 0.4); the paper's mean is loss_avg_mode=seq.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import ratio_of, response_mean
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("geo_mean")
def geo_mean(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """One loss for each response; importance weights enter by their geometric mean."""
    if aggregate.quirks.always_sequence_mean:
        aggregate = replace(aggregate, mode="seq-mean-token-mean")
    A, mask, log_ratio = inputs.advantages_BT, inputs.mask_BT, inputs.log_ratio
    bounded = log_ratio.clamp(-config.clip_ratio_low, config.clip_ratio_high)
    sign = A.sign()
    worse = sign * torch.minimum(sign * log_ratio, sign * bounded)
    loss_B1 = -response_mean(A, mask) * ratio_of(response_mean(worse, mask))
    if inputs.weights_BT is not None:
        loss_B1 = loss_B1 * response_mean(inputs.weights_BT.clamp(min=1e-10).log(), mask).exp()
    outside = bounded != log_ratio
    return aggregate(loss_B1.expand_as(mask), mask), {
        "pg_clipfrac_higher": aggregate.token_mean(outside & (A > 0), mask),
        "pg_clipfrac_lower": aggregate.token_mean(outside & (A < 0), mask),
        "ppo_kl": aggregate.token_mean(-log_ratio, mask),
    }
