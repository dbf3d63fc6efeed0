"""Implicit process rewards: a language model trained on outcomes alone says what each token is worth (PRIME).

r_φ(y_t) = β (log π_φ − log π_ref) of the token (Yuan et al., 2024). π_φ learns from whether responses are right by
L = −mean_i [o_i log σ(R_i) + (1 − o_i) log(1 − σ(R_i))], R_i = Σ_t r_φ(y_t), o_i between 0 and 1 (Cui et al., 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor


def process_rewards(log_probs_BT: Tensor, ref_log_probs_BT: Tensor, mask_BT: Tensor, beta: float) -> Tensor:
    """Return r_φ (B, T), exactly 0 outside the mask."""
    inside = mask_BT.bool()
    return beta * (torch.where(inside, log_probs_BT, 0.0) - torch.where(inside, ref_log_probs_BT, 0.0))


def outcome_loss(rewards_BT: Tensor, outcomes_B: Tensor, responses: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return these rows' share of the cross-entropy and of its accuracy over all `responses` of the mini-batch."""
    total_B = rewards_BT.sum(dim=1)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(total_B, outcomes_B.to(total_B.dtype), reduction="sum")
    right_B = (total_B.detach() > 0) == (outcomes_B > 0.5)
    return loss / responses, {"outcome_accuracy": right_B.float().sum() / responses}
