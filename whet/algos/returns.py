"""Returns: rewards from a token to the end, over the tokens that the model wrote."""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.quirks import Quirks
from whet.algos.registry import Signals


def masked(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The values under the mask, exactly 0 elsewhere."""
    return torch.where(mask_BT.bool(), values_BT, 0.0).float()


def total_rewards(signals: Signals) -> Tensor:
    """(B,): what each response earned altogether."""
    return signals.rewards_BT.double().sum(dim=1)


def earned_rewards(signals: Signals, quirks: Quirks) -> Tensor:
    """Rewards (B, T) on the tokens that earned them.

    A reward on a token that the model did not write, such as the end of a tool's answer, belongs to the last token
    that it wrote before.
    """
    rewards_BT, inside = signals.rewards_BT.double(), signals.mask_BT.bool()
    if quirks.rewards_outside_mask_are_lost:
        return rewards_BT
    positions = torch.arange(rewards_BT.shape[1], device=rewards_BT.device)
    earner_BT = torch.where(inside, positions, -1).cummax(dim=1).values
    earned_BT = torch.where(earner_BT >= 0, rewards_BT, 0.0)
    return torch.zeros_like(rewards_BT).scatter_add(1, earner_BT.clamp(min=0), earned_BT)


def rewards_to_go(signals: Signals, quirks: Quirks) -> Tensor:
    """G_t = Σ_{t' ≥ t} r_{t'} (B, T), also where the mask is 0."""
    rewards_BT = torch.where(signals.mask_BT.bool(), earned_rewards(signals, quirks), 0.0)
    return rewards_BT.flip(1).cumsum(dim=1).flip(1)
