"""GRPO: a response's score against the others of its prompt (Shao et al., 2024).

A_i = (s_i − mean) / (std + 1e-6), the standard deviation with n − 1; without the division under
`algorithm.norm_adv_by_std=false` (Dr. GRPO; Liu et al., 2025). Every token of a response gets its A_i.

A prompt with one response, or whose responses all score the same, says nothing about which was better: exactly 0.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("grpo", "grpo_vectorized", group=True)
def grpo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Group-normalised scores on every token the model wrote."""
    groups = Groups(signals.groups_B, quirks(config.match))
    advantages_B = normalised(total_rewards(signals), groups, config.norm_adv_by_std)
    advantages_BT = masked(advantages_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT


def normalised(scores_B: Tensor, groups: Groups, by_std: bool) -> Tensor:
    """Scores less their group's mean, divided by its standard deviation where wanted."""
    centred_B = groups.centred(scores_B)
    return centred_B / (groups.std(centred_B) + 1e-6) if by_std else centred_B
