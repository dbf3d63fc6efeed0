"""GPG: the plain policy gradient, without ratio or clip (Chu et al., 2025).

L = −A·log π. Meant for one update per rollout: with more, the samples are no longer the policy's own.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("gpg")
def gpg(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """REINFORCE."""
    mask = inputs.mask_BT
    loss = -inputs.advantages_BT * inputs.log_probs_BT
    return aggregate(inputs.weighted(loss), mask), {
        "ppo_kl": aggregate.token_mean(-inputs.log_ratio, mask),
    }
