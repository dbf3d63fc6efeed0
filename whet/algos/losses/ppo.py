"""The clipped policy loss of PPO with its two refinements, the default of GRPO and DAPO.

With ρ = π/π_old: L = max(−Aρ, −A·clip(ρ, 1−ε_low, 1+ε_high)) (Schulman et al., 2017; separate bounds: Yu et al., 2025),
and where A < 0 at most −A·c (dual clip: Ye et al., 2020), so that one very unlikely token cannot dominate.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import clipped_surrogate, ratio_of
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("default", "vanilla")
def ppo(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Dual-clip PPO with separate lower and upper bounds."""
    ceiling = None if aggregate.quirks.no_dual_clip else config.clip_ratio_dual
    return clipped_surrogate(ratio_of(inputs.log_ratio), inputs, config, aggregate, ceiling)
