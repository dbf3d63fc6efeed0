"""CISPO: clip the weight of a token's gradient, never the gradient itself (MiniMax, 2025).

L = −sg(clip(ρ, 1−ε_low, 1+ε_high))·A·log π. Every token keeps teaching, however far its ratio has gone. MiniMax has no
lower bound: ε_low = 1.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import ratio_of
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("cispo")
def cispo(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """REINFORCE with clipped importance weights."""
    mask = inputs.mask_BT
    ratio = ratio_of(inputs.log_ratio).detach()
    weight = ratio.clamp(1.0 - config.clip_ratio_low, 1.0 + config.clip_ratio_high)
    loss = -weight * inputs.advantages_BT * inputs.log_probs_BT
    return aggregate(inputs.weighted(loss), mask), {
        "pg_clipfrac_higher": aggregate.token_mean(weight != ratio, mask),
        "ppo_kl": aggregate.token_mean(-inputs.log_ratio, mask),
    }
