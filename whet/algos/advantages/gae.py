"""GAE: rewards to go against a critic's values, as PPO trains with (Schulman et al., 2016).

δ_t = r_t + γ V_{t+1} − V_t, A_t = δ_t + γλ A_{t+1}; returns are A + V, and A is whitened over the batch. t + 1 is the
next token that the model wrote: what a tool wrote in between has no value and no advantage.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import earned_rewards, masked
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.algos.whiten import whiten
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("gae", needs=("values",))
def gae(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Whitened generalised advantages, and the returns that the critic learns."""
    assert signals.values_BT is not None
    odd, mask_BT = quirks(config.match), signals.mask_BT
    rewards_BT, values_BT = earned_rewards(signals, odd), signals.values_BT.double()
    counts_BT = torch.ones_like(mask_BT, dtype=torch.bool) if odd.gae_over_observations else mask_BT.bool()
    advantages_BT = torch.zeros_like(rewards_BT)
    next_value_B = next_advantage_B = rewards_BT.new_zeros(len(rewards_BT))
    for t in reversed(range(rewards_BT.shape[1])):
        delta_B = rewards_BT[:, t] + config.gamma * next_value_B - values_BT[:, t]
        advantage_B = delta_B + config.gamma * config.lam * next_advantage_B
        next_value_B = torch.where(counts_BT[:, t], values_BT[:, t], next_value_B)
        next_advantage_B = torch.where(counts_BT[:, t], advantage_B, next_advantage_B)
        advantages_BT[:, t] = next_advantage_B
    returns_BT, whitened_BT = advantages_BT + values_BT, whiten(advantages_BT, mask_BT)
    if odd.gae_outside_mask:
        return whitened_BT, returns_BT.float()
    return masked(whitened_BT, mask_BT), masked(returns_BT, mask_BT)
