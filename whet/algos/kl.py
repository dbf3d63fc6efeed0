"""KL estimates from the log-probs of sampled tokens (Schulman, 2020), and the penalty in the reward."""

from __future__ import annotations

import torch
from torch import Tensor

from whet.errors import UserError

NAMES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")


def kl_penalty(log_probs_BT: Tensor, ref_log_probs_BT: Tensor, name: str) -> Tensor:
    """Per-token estimate of KL(policy ‖ reference); with d = log π − log π_ref:

    kl, k1: d.  abs: |d|.  mse, k2: d²/2.  low_var_kl, k3: e^−d + d − 1, clamped to 10.
    """
    precise = torch.promote_types(log_probs_BT.dtype, torch.float32)
    d = log_probs_BT.to(precise) - ref_log_probs_BT.to(precise)
    if name in ("kl", "k1"):
        return d
    if name == "abs":
        return d.abs()
    if name in ("mse", "k2"):
        return 0.5 * d.square()
    if name in ("low_var_kl", "k3"):
        u = (-d).clamp(-20.0, 20.0)
        return (u.exp() - u - 1).clamp(-10.0, 10.0)
    raise UserError(f"algorithm.kl_penalty={name}: choose one of {', '.join(NAMES)}")


def penalise(
    rewards_BT: Tensor, log_probs_BT: Tensor, ref_log_probs_BT: Tensor, mask_BT: Tensor, name: str, coef: float
) -> tuple[Tensor, Tensor]:
    """Rewards less the KL penalty of each token, and the batch's mean KL (mean over responses of their token mean)."""
    kl_BT = torch.where(mask_BT.bool(), kl_penalty(log_probs_BT, ref_log_probs_BT, name), 0.0)
    lengths = mask_BT.sum(dim=1).clamp(min=1)
    return rewards_BT - coef * kl_BT, (kl_BT.sum(dim=1) / lengths).mean()
