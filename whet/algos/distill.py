"""Reverse KL to a teacher as an advantage (Lu & Thinking Machines, 2025, On-Policy Distillation).

A_t = reward_coef · A_t^reward + coef · (log π_teacher − log π_old) of the sampled token. The policy gradient of the
second term is that of −KL(π ‖ π_teacher) at each token, later tokens left out (a discount of 0).
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.config.schema.distill import DistillConfig


def teacher_advantages(
    advantages_BT: Tensor,
    old_log_probs_BT: Tensor,
    teacher_log_probs_BT: Tensor,
    mask_BT: Tensor,
    config: DistillConfig,
) -> tuple[Tensor, float]:
    """Return advantages (B, T), exactly 0 outside the mask, and the mean estimate of KL(π_old ‖ π_teacher)."""
    inside = mask_BT.bool()
    gain_BT = torch.where(inside, teacher_log_probs_BT - old_log_probs_BT, 0.0)
    total_BT = config.coef * gain_BT
    if config.reward_coef:
        total_BT = total_BT + config.reward_coef * advantages_BT
    return total_BT, float(-gain_BT.sum() / inside.sum().clamp(min=1))
