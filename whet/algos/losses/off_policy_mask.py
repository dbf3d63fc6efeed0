"""Off-policy sequence masking: PPO's loss without failures that the policy has moved away from (DeepSeek-V3.2, 2025).

L = M·max(−Aρ, −A·clip(ρ, 1−ε_low, 1+ε_high)), at most −A·c where A < 0, with M = 0 where A < 0 and
mean_t log π_old/π > δ (`off_policy_delta`) over the response, else 1. Learning from one's own mistakes helps; from
responses that the policy would no longer give, it only adds noise. Counts of the mean are those before masking.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import clipped_surrogate, ratio_of, response_mean
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("off_policy_mask")
def off_policy_mask(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's loss, 0 on masked responses."""
    distance_B1 = response_mean(-inputs.log_ratio.detach(), inputs.mask_BT)
    left_BT = (inputs.advantages_BT < 0) & (distance_B1 > config.off_policy_delta)
    kept = replace(inputs, advantages_BT=torch.where(left_BT, 0.0, inputs.advantages_BT))
    loss, metrics = clipped_surrogate(ratio_of(kept.log_ratio), kept, config, aggregate, config.clip_ratio_dual)
    return loss, metrics | {"off_policy_masked": aggregate.token_mean(left_BT, inputs.mask_BT)}
