"""Dr. GRPO: scores less their group's mean, not divided by its standard deviation (Liu et al., 2025).

A_i = s_i − mean, whatever `algorithm.norm_adv_by_std` says. The name brings worker.actor.loss_avg_mode
seq-mean-token-sum-norm with it, so that neither the difficulty of a prompt nor the length of a response is a weight.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("dr_grpo", group=True)
def dr_grpo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Centred scores on every token the model wrote."""
    advantages_B = Groups(signals.groups_B, quirks(config.match)).centred(total_rewards(signals))
    advantages_BT = masked(advantages_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
