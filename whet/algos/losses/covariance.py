"""Covariance of a token's log-prob and advantage, which moves the policy's entropy (Cui et al., 2025)."""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.registry import LossInputs


def covariance(inputs: LossInputs) -> Tensor:
    """(B, T) of (A − mean A)(log π − mean log π), means over the tokens of the mini-batch; -inf outside the mask."""
    inside = inputs.mask_BT.bool()
    A, log_probs = inputs.advantages_BT, inputs.log_probs_BT.detach()
    n = inside.sum().clamp(min=1)
    product = (A - A.sum() / n) * (log_probs - log_probs.sum() / n)  # both are 0 outside
    return torch.where(inside, product, float("-inf"))
