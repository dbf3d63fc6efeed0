"""VPPO's view of how much a response depends on its image (Huang et al., 2025).

Each token's dependency S is how far its distribution moves when the image is masked: the k3 estimate from the sampled
token, or KL(π(·|image) ‖ π(·|masked image)) itself. The policy gradient is kept on the most dependent tokens of each
response, and responses weigh more the more they depend on the image as a whole. Statistics are those of the rows
given: pass the whole mini-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_DEPENDENT = 10.0  # no token counts for more than this in a response's mean


@dataclass(frozen=True, slots=True)
class Chosen:
    """The tokens with the largest values of each response."""

    mask_BT: Tensor  # 1 where a token is chosen, 0 elsewhere
    counts_B: Tensor  # tokens chosen of each response
    thresholds_B: Tensor  # the least value chosen, 0 where nothing is


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of responses."""

    weights_B: Tensor
    most: float  # β_max, the weight of the most dependent response; 1 where responses do not differ


def token_dependency(masked_log_probs_BT: Tensor, log_probs_BT: Tensor) -> Tensor:
    """S = e^D − D − 1 with D = log π(token | masked image) − log π(token | image), from 0 to 10."""
    D = (masked_log_probs_BT - log_probs_BT).clamp(-20.0, 20.0)
    return bounded(D.exp() - D - 1)


def bounded(dependency_BT: Tensor) -> Tensor:
    """Dependencies from 0, which rounding may miss, to the most that one token counts for."""
    return dependency_BT.clamp(0.0, MOST_DEPENDENT)


def top_tokens(values_BT: Tensor, mask_BT: Tensor, share: float, single_precision: bool = False) -> Chosen:
    """Each row's ⌈share · length⌉ largest values under the mask; of equal values the first.

    In single precision the product may land above a whole number that it is equal to, and one token more is chosen.
    """
    lengths_B = mask_BT.sum(dim=1)
    if single_precision:
        counts_B = torch.ceil(lengths_B.float() * share).long()
    else:
        counts_B = torch.ceil(lengths_B.double() * share - 1e-9).long()
    inside_BT = torch.where(mask_BT.bool(), values_BT, -torch.inf)
    ordered_BT, ranked_BT = inside_BT.sort(dim=1, descending=True, stable=True)
    first_BT = torch.arange(mask_BT.shape[1], device=mask_BT.device) < counts_B[:, None]
    chosen_BT = torch.zeros_like(mask_BT).scatter(1, ranked_BT, first_BT.to(mask_BT.dtype)) * mask_BT
    last_B = ordered_BT.gather(1, (counts_B - 1).clamp(min=0)[:, None])[:, 0]
    return Chosen(chosen_BT, counts_B, torch.where(counts_B > 0, last_B, 0.0))


def response_dependency(dependency_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B,): the mean S of each response."""
    return torch.where(mask_BT.bool(), dependency_BT, 0.0).sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)


def relative_dependency(dependency_B: Tensor, counted_B: Tensor) -> Tensor | None:
    """z = (s − min s)/(max s − min s), the extremes those of the rows that count; None where these do not differ."""
    counted = dependency_B[counted_B]
    if len(counted) < 2 or counted.max() - counted.min() <= 1e-6:
        return None
    return ((dependency_B - counted.min()) / (counted.max() - counted.min())).clamp(0.0, 1.0)


def response_weights(z_B: Tensor | None, counted_B: Tensor, least: float) -> Weights:
    """Weights from `least` up, linear in z and 1 on average over the rows that count; 1 for the others.

    w = β_min + z·(β_max − β_min) with β_max = β_min + (1 − β_min)/mean z.
    """
    if z_B is None or not counted_B.any():
        return Weights(torch.ones(len(counted_B)), 1.0)
    most = least + (1 - least) / (z_B[counted_B].mean() + 1e-8)
    return Weights(torch.where(counted_B, least + z_B * (most - least), 1.0), float(most))
