"""Rewards summed over a response, and statistics over the responses to one prompt."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from whet.algos.quirks import NONE, Quirks
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


class Groups:
    """Groups of rows that answer the same prompt, and comparisons of their scores.

    A group whose scores are all equal says nothing about which response was better, and a single response has nothing
    to be compared with: both compare as exactly 0, whatever floating point makes of their mean.
    """

    def __init__(self, groups_B: Tensor, quirks: Quirks = NONE) -> None:
        _, self.index_B, sizes_G = groups_B.unique(return_inverse=True, return_counts=True)
        self.size_B = sizes_G[self.index_B]
        self.lone_B = (self.size_B == 1) & quirks.singleton_keeps_score  # rows that are left as they are
        self._single_precision = quirks.means_in_single_precision

    def sum(self, values_B: Tensor) -> Tensor:
        """Each row's sum over its group."""
        sums_G = torch.zeros(self._count, dtype=values_B.dtype, device=values_B.device)
        return sums_G.index_add_(0, self.index_B, values_B)[self.index_B]

    def silent(self, values_B: Tensor) -> Tensor:
        """True for rows whose group's values are all exactly equal."""
        low = torch.full((self._count,), float("inf"), dtype=values_B.dtype, device=values_B.device)
        high = -low
        low = low.scatter_reduce(0, self.index_B, values_B, "amin")
        high = high.scatter_reduce(0, self.index_B, values_B, "amax")
        return (low == high)[self.index_B] & ~self.lone_B

    def against(self, baselines_B: Tensor, values_B: Tensor) -> Tensor:
        """Each value less its baseline; 0 where the group is silent."""
        differences_B = values_B - torch.where(self.lone_B, 0.0, baselines_B)
        return torch.where(self.silent(values_B), 0.0, differences_B)

    def centred(self, values_B: Tensor) -> Tensor:
        """Each value less its group's mean; 0 where the group is silent."""
        centred_B = self.against(self.sum(values_B) / self.size_B, values_B)
        if self._single_precision:
            for rows in self.rows():
                if len(rows) > 1:
                    rounded = values_B[rows].float()
                    centred_B[rows] = (rounded - rounded.mean()).to(centred_B.dtype)
        return centred_B

    def std(self, centred_B: Tensor) -> Tensor:
        """The standard deviation, with n − 1, of the group that was centred."""
        variance_B = self.sum(centred_B.square()) / (self.size_B - 1).clamp(min=1)
        return torch.where(self.lone_B, 1.0, variance_B.sqrt())

    def rows(self) -> Iterator[Tensor]:
        """The row numbers of each group."""
        for group in range(self._count):
            yield (self.index_B == group).nonzero().squeeze(1)

    @property
    def _count(self) -> int:
        return int(self.index_B.max()) + 1
