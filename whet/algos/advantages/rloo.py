"""RLOO: a response's score less the mean of the others of its prompt (Ahmadian et al., 2024).

A_i = s_i − mean of s_j, j ≠ i. A prompt with one response has nothing to compare with: 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import all_equal, group_index, group_sum
from whet.algos.registry import Signals, advantage
from whet.config.algorithm import AlgorithmConfig


@advantage("rloo", "rloo_vectorized")
def rloo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Leave-one-out scores on every token the model wrote."""
    scores_B = signals.rewards_BT.double().sum(dim=1)
    index_B, size_B = group_index(signals.groups_B)
    others_B = (group_sum(scores_B, index_B) - scores_B) / (size_B - 1).clamp(min=1)
    advantage_B = torch.where(all_equal(scores_B, index_B), 0.0, scores_B - others_B)
    advantages_BT = advantage_B[:, None].float() * signals.mask_BT
    return advantages_BT, advantages_BT
