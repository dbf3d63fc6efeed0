"""GPG: the plain policy gradient with centred scores, scaled up for batches with little signal (Chu et al., 2025).

A_i = α (s_i − mean), α = B / (number of responses whose score is not 0). Goes with `worker.actor.loss_type=gpg`.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("gpg", group=True)
def gpg(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Scaled scores less their group's mean, on every token the model wrote."""
    scores_B = total_rewards(signals)
    scale = len(scores_B) / max(int(scores_B.count_nonzero()), 1)
    advantages_B = scale * Groups(signals.groups_B, quirks(config.match)).centred(scores_B)
    advantages_BT = masked(advantages_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
