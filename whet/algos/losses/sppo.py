"""SPPO: regress a response's log-ratio on its chance to win against the policy (Wu et al., 2024).

L = mean_i (Σ_t log π/π_old − η·A_i)² with A_i = P̂(y_i ≻ π) − ½ (`algorithm.adv_estimator=sppo`) and η `sppo_eta`: the
multiplicative-weights update π ∝ π_old · exp(η P̂) of the two-player game, fitted by least squares. The policy that
sampled is the one of the last iteration, so several updates a step (`ppo_epochs`, `global_batch_size`) are meant. The
mean over responses is part of the loss: `loss_avg_mode` changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import response_mean
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("sppo")
def sppo(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Squared distance of each response's log-ratio from η times its advantage."""
    mask, log_ratio = inputs.mask_BT, inputs.log_ratio
    residual_B1 = (log_ratio * mask).sum(dim=1, keepdim=True) - config.sppo_eta * response_mean(
        inputs.advantages_BT, mask
    )
    by_response = replace(aggregate, mode="seq-mean-token-mean")
    return by_response(inputs.weighted(residual_B1.square().expand_as(mask)), mask), {
        "sppo_residual": by_response(residual_B1.detach().abs().expand_as(mask), mask),
        "ppo_kl": aggregate.token_mean(-log_ratio, mask),
    }
