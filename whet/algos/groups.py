"""Statistics over the responses to one prompt."""

from __future__ import annotations

import torch
from torch import Tensor


def group_index(groups_B: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's group as 0..G-1, and the size of its group."""
    _, index_B, sizes_G = groups_B.unique(return_inverse=True, return_counts=True)
    return index_B, sizes_G[index_B]


def group_sum(values_B: Tensor, index_B: Tensor) -> Tensor:
    """Each row's sum over its group."""
    sums_G = torch.zeros(int(index_B.max()) + 1, dtype=values_B.dtype, device=values_B.device)
    return sums_G.index_add_(0, index_B, values_B)[index_B]


def all_equal(values_B: Tensor, index_B: Tensor) -> Tensor:
    """Whether every value of the row's group is the same, exactly."""
    G = int(index_B.max()) + 1
    low = torch.full((G,), float("inf"), dtype=values_B.dtype, device=values_B.device)
    high = -low
    low = low.scatter_reduce(0, index_B, values_B, "amin")
    high = high.scatter_reduce(0, index_B, values_B, "amax")
    return (low == high)[index_B]
