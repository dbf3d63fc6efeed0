"""DPPO with total variation: a trust region on probabilities instead of ratios (Qi et al., 2026).

L = −sg(min(ρ, c))·A·log π where the token may still move, else 0. It may while its probability has moved by no more
than the bound in the direction that A pushes: π − π_old ≤ ε_high where A > 0, π_old − π ≤ ε_low elsewhere. c is
dppo_ratio_max.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import within_region
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("dppo_tv")
def dppo_tv(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Importance-weighted REINFORCE on tokens inside the trust region."""
    moved = inputs.log_probs_BT.detach().exp() - inputs.old_log_probs_BT.exp()
    rising = inputs.advantages_BT > 0
    keep = torch.where(rising, moved <= config.clip_ratio_high, moved >= -config.clip_ratio_low)
    return within_region(keep, inputs, config, aggregate)
