"""GSPO-token: the response's ratio, each token's own gradient (Zheng et al., 2025).

s_it = sg(s_i)·π/sg(π) with s_i = exp(mean_t log π/π_old); L = max(−A s_it, −A·clip(s_it, 1−ε_low, 1+ε_high)). Its value
is GSPO's; the gradient of a token uses that token's own advantage, so advantages may differ within a response.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import clipped_surrogate, ratio_of, response_mean
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("gspo_token")
def gspo_token(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's loss with a ratio that has the response's value and the token's gradient."""
    log_probs = inputs.log_probs_BT
    sequence = response_mean(inputs.log_ratio, inputs.mask_BT).detach()
    log_ratio = sequence + log_probs - log_probs.detach()
    if aggregate.quirks.gspo_is_gspo_token:
        log_ratio = log_ratio.clamp(max=10.0)
    ceiling = config.clip_ratio_dual if aggregate.quirks.gspo_dual_clip else None
    return clipped_surrogate(ratio_of(log_ratio), inputs, config, aggregate, ceiling)
