"""KL-Cov: a KL penalty on the tokens that drive entropy down (Cui et al., 2025).

L = −Aρ, and + ppo_kl_coef·|log π/π_old| on the share kl_cov_ratio of the mini-batch's tokens with the largest
covariance (A − mean A)(log π − mean log π): likely tokens that are rewarded, unlikely ones that are punished. At least
one token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.covariance import covariance
from whet.algos.losses.surrogate import ratio_of
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


def _choose(inputs: LossInputs, config: ActorConfig) -> dict[str, Tensor]:
    inside = inputs.mask_BT.bool()
    chosen = torch.zeros_like(inside)
    n = int(inside.sum())
    if n:
        top = covariance(inputs)[inside].topk(max(1, int(n * config.kl_cov_ratio))).indices
        chosen[inside] = torch.zeros(n, dtype=torch.bool, device=top.device).index_fill(0, top, True)
    return {"chosen": chosen}


@policy_loss("kl_cov", prepare=_choose)
def kl_cov(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """The unclipped surrogate, penalised where covariance is largest."""
    mask, log_ratio = inputs.mask_BT, inputs.log_ratio
    loss = -inputs.advantages_BT * ratio_of(log_ratio)
    loss = loss + config.ppo_kl_coef * log_ratio.abs() * inputs.prepared["chosen"]
    moved = log_ratio.abs() if aggregate.quirks.kl_cov_reports_distance else -log_ratio
    return aggregate(inputs.weighted(loss), mask), {"ppo_kl": aggregate.token_mean(moved, mask)}
