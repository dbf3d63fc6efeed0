"""Clip-Cov: no gradient from a few of the tokens that drive entropy down (Cui et al., 2025).

L = max(−Aρ, −A·clip(ρ, 1−ε_low, 1+ε_high)), but 0 on the share clip_cov_ratio of the mini-batch's tokens, at least
one, drawn from those that are not clipped anyway and whose covariance (A − mean A)(log π − mean log π) lies between
clip_cov_lb and clip_cov_ub. The draw is seeded by the mini-batch itself, so that a resumed run makes the same one.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.covariance import covariance
from whet.algos.losses.surrogate import ratio_of
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


def _draw(inputs: LossInputs, config: ActorConfig) -> dict[str, Tensor]:
    plain, clipped = _both(inputs, config)
    cov = covariance(inputs)
    candidates = ((cov > config.clip_cov_lb) & (cov < config.clip_cov_ub) & (clipped <= plain)).nonzero()
    generator = torch.Generator().manual_seed(zlib.crc32(inputs.old_log_probs_BT.numpy(force=True).tobytes()))
    k = max(1, int(config.clip_cov_ratio * int(inputs.mask_BT.sum())))
    rows, columns = candidates[torch.randperm(len(candidates), generator=generator)[:k].to(candidates.device)].T
    keep = torch.ones_like(inputs.mask_BT)
    keep[rows, columns] = 0.0
    return {"keep": keep}


def _both(inputs: LossInputs, config: ActorConfig) -> tuple[Tensor, Tensor]:
    A, ratio = inputs.advantages_BT, ratio_of(inputs.log_ratio)
    return -A * ratio, -A * ratio.clamp(1.0 - config.clip_ratio_low, 1.0 + config.clip_ratio_high)


@policy_loss("clip_cov", prepare=_draw)
def clip_cov(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's loss without the tokens drawn."""
    mask, keep = inputs.mask_BT, inputs.prepared["keep"]
    loss = torch.maximum(*_both(inputs, config)) * keep
    return aggregate(inputs.weighted(loss), mask), {
        "pg_clipfrac_higher": aggregate.token_mean(keep == 0, mask),
        "ppo_kl": aggregate.token_mean(-inputs.log_ratio, mask),
    }
