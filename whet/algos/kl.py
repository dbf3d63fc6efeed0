"""KL estimates from the log-probs of sampled tokens (Schulman, 2020), and the penalty in the reward.

`full`, the exact KL over the vocabulary, is not an estimate from log-probs: `learn/distributions.py` makes it from both
models' hidden states.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.errors import UserError

NAMES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")


def kl_penalty(log_probs_BT: Tensor, ref_log_probs_BT: Tensor, name: str) -> Tensor:
    """Per-token estimate of KL(policy ‖ reference); with d = log π − log π_ref:

    kl, k1: d.  abs: |d|.  mse, k2: d²/2.  low_var_kl, k3: e^−d + d − 1, clamped to 10.
    A + behind any of them: its value with the gradient of k2, which in expectation is that of the KL itself (the
    gradient of k1 is 0 in expectation).
    """
    precise = torch.promote_types(log_probs_BT.dtype, torch.float32)
    d = log_probs_BT.to(precise) - ref_log_probs_BT.to(precise)
    if name.endswith("+"):
        k2 = 0.5 * d.square()
        return _estimate(d, name.removesuffix("+")).detach() + (k2 - k2.detach())
    return _estimate(d, name)


def _estimate(d: Tensor, name: str) -> Tensor:
    if name in ("kl", "k1"):
        return d
    if name == "abs":
        return d.abs()
    if name in ("mse", "k2"):
        return 0.5 * d.square()
    if name in ("low_var_kl", "k3"):
        u = (-d).clamp(-20.0, 20.0)
        return (u.exp() - u - 1).clamp(-10.0, 10.0)
    raise UserError(f"algorithm.kl_penalty={name}: choose one of {', '.join(NAMES)}, each with or without a +")


def penalise(rewards_BT: Tensor, kl_BT: Tensor, mask_BT: Tensor, coef: float) -> tuple[Tensor, Tensor]:
    """Rewards less the KL penalty of each token, and the batch's mean KL (mean over responses of their token mean)."""
    kl_BT = torch.where(mask_BT.bool(), kl_BT, 0.0)
    lengths = mask_BT.sum(dim=1).clamp(min=1)
    return rewards_BT - coef * kl_BT, (kl_BT.sum(dim=1) / lengths).mean()
