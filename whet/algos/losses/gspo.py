"""GSPO: one ratio for a whole response (Zheng et al., 2025).

s_i = exp(mean_t log π/π_old), the geometric mean of the tokens' ratios. On every token of response i
L = max(−A s_i, −A·clip(s_i, 1−ε_low, 1+ε_high)), the gradient flowing through all tokens of the mean. No dual clip, as
in the paper, whose bounds are about 3e-4 and whose mean is loss_avg_mode=seq.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.gspo_token import gspo_token
from whet.algos.losses.surrogate import clipped_surrogate, ratio_of, response_mean
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("gspo")
def gspo(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's loss with the response's ratio in place of the token's."""
    if aggregate.quirks.gspo_is_gspo_token:
        return gspo_token(inputs, config, aggregate)
    ratio = ratio_of(response_mean(inputs.log_ratio, inputs.mask_BT)).expand_as(inputs.mask_BT)
    ceiling = config.clip_ratio_dual if aggregate.quirks.gspo_dual_clip else None
    return clipped_surrogate(ratio, inputs, config, aggregate, ceiling)
