"""REINFORCE++: discounted rewards to go, whitened over the whole batch instead of compared in groups (Hu, 2025).

G_t = r_t + γ G_{t+1} over the tokens that the model wrote, γ = `algorithm.gamma`; A = whiten(G). Tokens of tools are
skipped: nothing is discounted across them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import earned_rewards, masked
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.algos.whiten import whiten
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("reinforce_plus_plus")
def reinforce_plus_plus(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Whitened discounted rewards to go."""
    odd, mask_BT = quirks(config.match), signals.mask_BT.double()
    rewards_BT = earned_rewards(signals, odd)
    returns_BT = torch.zeros_like(rewards_BT)
    later_B = rewards_BT.new_zeros(len(rewards_BT))
    for t in reversed(range(rewards_BT.shape[1])):
        returns_BT[:, t] = rewards_BT[:, t] + config.gamma * later_B
        skipped_B = 0.0 if odd.rewards_end_at_observations else later_B * (1 - mask_BT[:, t])
        later_B = returns_BT[:, t] * mask_BT[:, t] + skipped_B
    if not odd.rewards_end_at_observations:
        returns_BT = masked(returns_BT, mask_BT)
    advantages_BT = whiten(returns_BT, mask_BT)
    return advantages_BT if odd.whitened_outside_mask else masked(advantages_BT, mask_BT), returns_BT.float()
