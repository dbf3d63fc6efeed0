"""GRPO: a response's score against the others of its prompt (Shao et al., 2024).

A_i = (s_i − mean) / (std + 1e-6), the standard deviation with n − 1; without the division under
`algorithm.norm_adv_by_std=false` (Dr. GRPO; Liu et al., 2025). Every token of a response gets its A_i.

A prompt with one response, or whose responses all score the same, says nothing about which was better: exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import all_equal, group_index, group_sum
from whet.algos.registry import Signals, advantage
from whet.config.algorithm import AlgorithmConfig


@advantage("grpo", "grpo_vectorized")
def grpo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Group-normalised scores on every token the model wrote."""
    scores_B = signals.rewards_BT.double().sum(dim=1)
    index_B, size_B = group_index(signals.groups_B)
    centred_B = scores_B - group_sum(scores_B, index_B) / size_B
    if config.norm_adv_by_std:
        variance_B = group_sum(centred_B.square(), index_B) / (size_B - 1).clamp(min=1)
        centred_B = centred_B / (variance_B.sqrt() + 1e-6)
    centred_B = torch.where(all_equal(scores_B, index_B), 0.0, centred_B)
    advantages_BT = centred_B[:, None].float() * signals.mask_BT
    return advantages_BT, advantages_BT
