"""VPPO's view of how much a response depends on its image (Huang et al., 2025).

Each token's dependency S is the k3 estimate of how its log-prob moves when patches of the image are blackened. The
policy gradient is kept on the most dependent tokens of each response, and responses weigh more the more they depend on
the image as a whole. Statistics are those of the rows given: pass the whole mini-batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Shaping:
    """Which tokens keep their gradient, and how much each response weighs."""

    dependency_BT: Tensor  # S, over all positions
    counts: list[int]  # tokens kept of each response
    mask_BT: Tensor
    dependency_B: Tensor  # mean S of each response
    most: float  # the weight of the most dependent response
    weights_B: Tensor


def token_dependency(masked_log_probs_BT: Tensor, log_probs_BT: Tensor) -> Tensor:
    """S = e^D − D − 1 with D = log π(token | blackened image) − log π(token | image), from 0 to 10."""
    D = (masked_log_probs_BT - log_probs_BT).clamp(-20.0, 20.0)
    return (D.exp() - D - 1).clamp(0.0, 10.0)


def top_tokens(values_BT: Tensor, mask_BT: Tensor, share: float) -> tuple[Tensor, list[int]]:
    """The mask of each row's ⌈share · length⌉ largest values, and those counts; of equal values the first."""
    counts = [math.ceil(length * share) for length in mask_BT.sum(dim=1).int().tolist()]
    ranked_BT = torch.where(mask_BT.bool(), values_BT, -torch.inf).argsort(dim=1, descending=True, stable=True)
    chosen_BT = torch.zeros_like(mask_BT)
    for row, count in enumerate(counts):
        chosen_BT[row, ranked_BT[row, :count]] = 1
    return chosen_BT * mask_BT, counts


def response_weights(dependency_B: Tensor, least: float) -> tuple[Tensor, float]:
    """Weights from `least` up, linear in a response's dependency and 1 on average, and the largest possible one.

    z = (s − min s)/(max s − min s); w = β_min + z·(β_max − β_min), β_max = β_min + (1 − β_min)/mean z. All 1 where the
    responses do not differ.
    """
    low, high = dependency_B.min(), dependency_B.max()
    if len(dependency_B) < 2 or high - low <= 1e-6:
        return torch.ones_like(dependency_B), 1.0
    z = ((dependency_B - low) / (high - low)).clamp(0.0, 1.0)
    most = least + (1 - least) / (z.mean() + 1e-8)
    return least + z * (most - least), float(most)


def shape(masked_log_probs_BT: Tensor, log_probs_BT: Tensor, mask_BT: Tensor, share: float, least: float) -> Shaping:
    """Everything VPPO needs to know of a mini-batch, from the log-probs with and without the blackened patches."""
    S = token_dependency(masked_log_probs_BT, log_probs_BT)
    chosen_BT, counts = top_tokens(S, mask_BT, share)
    dependency_B = torch.where(mask_BT.bool(), S, 0.0).sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)
    weights_B, most = response_weights(dependency_B, least)
    return Shaping(S, counts, chosen_BT, dependency_B, most, weights_B)
