"""FlowRL: the squared distance from a target distribution, in place of a reward to maximise (Zhu et al., 2025).

L = mean_i w_i (mean_t log π − u_i)² with w_i = sg(clip(Π_t π/π_old, 1−ε_low, 1+ε_high)) and u_i the advantage of
`algorithm.adv_estimator=flowrl`, the log of what the policy is to match. The mean over responses is part of the loss:
`loss_avg_mode` changes nothing. The authors' code computes the clipped weight and multiplies by the unclipped one;
verl's recipe flowrl bounds it by 10 from above.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import ratio_of, response_mean
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("flowrl")
def flowrl(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Squared residuals of trajectory balance, one for each response."""
    mask = inputs.mask_BT
    ratio_B1 = ratio_of(inputs.log_ratio.detach().sum(dim=1, keepdim=True))  # 0 outside the mask
    weight_B1 = ratio_B1.clamp(1.0 - config.clip_ratio_low, 1.0 + config.clip_ratio_high)
    residual_B1 = response_mean(inputs.log_probs_BT, mask) - response_mean(inputs.advantages_BT, mask)
    by_response = replace(aggregate, mode="seq-mean-token-mean")
    loss_BT = (weight_B1 * residual_B1.square()).expand_as(mask)
    return by_response(inputs.weighted(loss_BT), mask), {
        "flow_residual": by_response(residual_B1.detach().abs().expand_as(mask), mask),
        "pg_clipfrac_higher": aggregate.token_mean((weight_B1 != ratio_B1).expand_as(mask), mask),
        "ppo_kl": aggregate.token_mean(-inputs.log_ratio, mask),
    }
