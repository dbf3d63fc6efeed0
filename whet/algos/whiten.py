"""Zero mean and unit variance over the tokens of a batch."""

from __future__ import annotations

import torch
from torch import Tensor


def whiten(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(x − mean) / sqrt(variance + 1e-8), statistics over the mask with n − 1; the caller masks the result.

    Fewer than two tokens have no variance: 0 everywhere.
    """
    inside = mask_BT.bool()
    n = int(inside.sum())
    if n < 2:
        return torch.zeros_like(values_BT)
    chosen = values_BT[inside].double()
    shift = chosen[0]  # so that equal values have a mean of exactly 0
    mean = (chosen - shift).mean()
    variance = (chosen - shift - mean).square().sum() / (n - 1)
    return ((values_BT.double() - shift - mean) * (variance + 1e-8).rsqrt()).float()
