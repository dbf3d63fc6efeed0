"""Parts shared by several losses: ratios, means over a response, and the losses built on them."""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.registry import LossInputs
from whet.config.schema.actor import ActorConfig


def ratio_of(log_ratio: Tensor) -> Tensor:
    """π/π_old, kept within what a float can hold."""
    return log_ratio.clamp(-20.0, 20.0).exp()


def response_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B, 1): each response's mean over the tokens that the model wrote; 0 where it wrote none."""
    lengths = mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(mask_BT.bool(), values_BT, 0.0).sum(dim=1, keepdim=True) / lengths


def clipped_surrogate(
    ratio: Tensor, inputs: LossInputs, config: ActorConfig, aggregate: Aggregator, ceiling: float | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """max(−Aρ, −A·clip(ρ, 1−ε_low, 1+ε_high)), and at most −A·ceiling where A < 0."""
    A, mask = inputs.advantages_BT, inputs.mask_BT
    plain = -A * ratio
    clipped = -A * ratio.clamp(1.0 - config.clip_ratio_low, 1.0 + config.clip_ratio_high)
    loss = torch.maximum(plain, clipped)
    metrics = {
        "pg_clipfrac_higher": aggregate.token_mean(clipped > plain, mask),
        "ppo_kl": aggregate.token_mean(-inputs.log_ratio, mask),
    }
    if ceiling is not None:
        beyond = (loss > -A * ceiling) & (A < 0)
        metrics["pg_clipfrac_lower"] = aggregate.token_mean(beyond, mask)
        loss = torch.where(beyond, -A * ceiling, loss)
    return aggregate(inputs.weighted(loss), mask), metrics


def within_region(
    keep: Tensor, inputs: LossInputs, config: ActorConfig, aggregate: Aggregator
) -> tuple[Tensor, dict[str, Tensor]]:
    """−sg(min(ρ, c))·A·log π on the tokens to keep, 0 on the others."""
    mask = inputs.mask_BT
    most = config.clip_ratio_dual if aggregate.quirks.dppo_ratio_max_is_dual_clip else config.dppo_ratio_max
    weight = ratio_of(inputs.log_ratio).detach().clamp(max=most)
    loss = -weight * inputs.advantages_BT * inputs.log_probs_BT * keep
    return aggregate(inputs.weighted(loss), mask), {
        "pg_clipfrac_higher": aggregate.token_mean(~keep, mask),
        "ppo_kl": aggregate.token_mean(-inputs.log_ratio, mask),
    }
