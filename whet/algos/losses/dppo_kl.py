"""DPPO with KL: a trust region on each token's binary KL (Qi et al., 2026).

L = −sg(min(ρ, c))·A·log π where the token may still move, else 0. It may while it is pushed back towards π_old, or
while D = π_old·log(π_old/π) + (1−π_old)·log((1−π_old)/(1−π)) is at most ε_high where A > 0, ε_low elsewhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import within_region
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("dppo_kl")
def dppo_kl(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Importance-weighted REINFORCE on tokens inside the trust region."""
    log_ratio, A = inputs.log_ratio.detach(), inputs.advantages_BT
    old = inputs.old_log_probs_BT.exp()
    rest, old_rest = ((1.0 - p).clamp(min=0.0) + 1e-8 for p in (inputs.log_probs_BT.detach().exp(), old))
    kl = -old * log_ratio + (1.0 - old) * (old_rest.log() - rest.log())
    rising = (kl <= config.clip_ratio_high) | (log_ratio <= 0)
    falling = (kl <= config.clip_ratio_low) | (log_ratio >= 0)
    return within_region(torch.where(A > 0, rising, falling), inputs, config, aggregate)
