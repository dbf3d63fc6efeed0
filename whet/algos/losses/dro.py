"""DRO: the policy gradient with a squared distance to the policy that sampled (Richemond et al., 2024).

L = −(A·log π − β/2·(log π/π_old)²), with A in the place of the reward less its learned value; β is dro_beta.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("dro")
def dro(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """REINFORCE, held back by the squared log-ratio."""
    mask, log_ratio = inputs.mask_BT, inputs.log_ratio
    loss = 0.5 * config.dro_beta * log_ratio.square() - inputs.advantages_BT * inputs.log_probs_BT
    return aggregate(inputs.weighted(loss), mask), {
        "ppo_kl": aggregate.token_mean(-log_ratio, mask),
    }
