"""GDPO: every reward is normalised on its own before they are added, so that none drowns the others (Liu et al., 2026).

A = Σ_k w_k Â_k, Â_k = GRPO's advantage of the score `algorithm.gdpo_reward_keys[k]`, whitened over the batch's tokens.
Without keys there is one reward: the one that drives training. A group that is silent in every reward stays 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.advantages.grpo import normalised
from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.algos.whiten import whiten
from whet.config.schema.algorithm import AlgorithmConfig
from whet.errors import UserError


@advantage("gdpo", group=True)
def gdpo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """The weighted sum of each reward's group-normalised scores, whitened."""
    odd = quirks(config.match)
    groups = Groups(signals.groups_B, odd)
    rewards = _rewards(signals, config) or [total_rewards(signals)]
    silent_B = torch.stack([groups.silent(each) for each in rewards]).all(dim=0)
    weights_K = torch.tensor(config.gdpo_reward_weights or [1.0] * len(rewards), dtype=torch.float64)
    advantages_B = weights_K @ torch.stack([normalised(each, groups, config.norm_adv_by_std) for each in rewards])
    advantages_BT = masked(whiten(masked(advantages_B[:, None], signals.mask_BT), signals.mask_BT), signals.mask_BT)
    if not odd.equal_groups_not_zero:
        advantages_BT[silent_B] = 0.0
    return advantages_BT, advantages_BT


def _rewards(signals: Signals, config: AlgorithmConfig) -> list[Tensor]:
    for name in config.gdpo_reward_keys:
        if name not in signals.scores:
            given = ", ".join(signals.scores) or "none"
            raise UserError(f"algorithm.gdpo_reward_keys: the reward function gives no {name} (it gives {given})")
    return [signals.scores[name].double() for name in config.gdpo_reward_keys]
