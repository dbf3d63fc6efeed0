"""The clipped policy loss of PPO with its two refinements, the default of GRPO and DAPO.

With ρ = π/π_old: L = max(−Aρ, −A·clip(ρ, 1−ε_low, 1+ε_high)) (Schulman et al., 2017; separate bounds: DAPO, 2025),
and where A < 0 at most −A·c (dual clip: Ye et al., 2020), so that one very unlikely token cannot dominate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.registry import LossInputs, policy_loss
from whet.config.actor import ActorConfig


@policy_loss("default", "vanilla")
def ppo(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Dual-clip PPO with separate lower and upper bounds."""
    A, mask = inputs.advantages_BT, inputs.mask_BT
    log_ratio = inputs.log_probs_BT - inputs.old_log_probs_BT
    ratio = log_ratio.clamp(-20.0, 20.0).exp()
    plain = -A * ratio
    clipped = -A * ratio.clamp(1.0 - config.clip_ratio_low, 1.0 + config.clip_ratio_high)
    pessimistic = torch.maximum(plain, clipped)
    ceiling = -A * config.clip_ratio_dual
    loss = torch.where(A < 0, torch.minimum(pessimistic, ceiling), pessimistic)
    return aggregate(loss, mask), {
        "pg_clipfrac_higher": aggregate.token_mean(clipped > plain, mask),
        "pg_clipfrac_lower": aggregate.token_mean((pessimistic > ceiling) & (A < 0), mask),
        "ppo_kl": aggregate.token_mean(-log_ratio, mask),
    }
