"""REINFORCE++ with a group baseline: scores less their prompt's mean, whitened over the whole batch (Hu, 2025).

A = whiten(s_i − mean) over the batch's tokens. Whitening moves the mean: what it gives to a group whose scores are all
equal is not about its responses, so such a group stays 0.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.algos.whiten import whiten
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("reinforce_plus_plus_baseline", group=True)
def reinforce_plus_plus_baseline(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Whitened scores less their group's mean."""
    odd, scores_B = quirks(config.match), total_rewards(signals)
    groups = Groups(signals.groups_B, odd)
    centred_BT = masked(groups.centred(scores_B)[:, None], signals.mask_BT)
    advantages_BT = masked(whiten(centred_BT, signals.mask_BT), signals.mask_BT)
    if not odd.equal_groups_not_zero:
        advantages_BT[groups.silent(scores_B)] = 0.0
    return advantages_BT, advantages_BT
