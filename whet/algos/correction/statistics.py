"""Means over tokens, and over the responses' own means."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the mask; 0 where it is empty."""
    return (values_BT.float() * mask_BT).sum() / (mask_BT.sum() + 1e-8)


def masked_std(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Standard deviation over the mask."""
    variance = masked_mean(values_BT.square(), mask_BT) - masked_mean(values_BT, mask_BT).square()
    return variance.clamp(min=0.0).sqrt()


def row_means(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The mean of each row that has tokens, over its mask."""
    lengths_B = mask_BT.sum(dim=1)
    return ((values_BT * mask_BT).sum(dim=1) / (lengths_B + 1e-8))[lengths_B > 0]


def row_spread(means: Tensor, centre: float) -> dict[str, Tensor]:
    """Mean, deviation and extremes of rows' means, and how far from `centre` the farthest is."""
    return {
        "seq_mean": means.mean(),
        "seq_std": means.std() if len(means) > 1 else torch.zeros(()),
        "seq_max": means.max(),
        "seq_min": means.min(),
        "seq_max_deviation": (means - centre).abs().max(),
    }
