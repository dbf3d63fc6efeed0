"""MaxRL: the gradient of log(pass rate) rather than of the pass rate (Tajwar et al., 2026, arXiv:2602.02710).

A_i = (s_i − mean) / mean within a prompt, for scores of 0 or 1. With K of n responses right, the mean of A_i ∇log π is
the mean gradient of the right ones less that of all. Its expectation is ∇ Σ_{k < n} pass@k / k, which tends to
∇ log(pass rate) as n grows: prompts that are rarely solved weigh more than under GRPO. Exactly 0 where no response is
right. Scores are not to be negative; a mean of 0 or below gives 0. Compared with the authors' tajwarfahim/maxrl, which
divides by mean + 1e-6.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("maxrl", group=True)
def maxrl(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Scores less their group's mean, divided by it, on every token the model wrote."""
    groups, scores_B = Groups(signals.groups_B, quirks(config.match)), total_rewards(signals)
    mean_B = groups.sum(scores_B) / groups.size_B
    solved_B = mean_B > 0
    advantages_B = torch.where(solved_B, groups.centred(scores_B) / torch.where(solved_B, mean_B, 1.0), 0.0)
    advantages_BT = masked(advantages_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
