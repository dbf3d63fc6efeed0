"""GPG: the plain policy gradient with centred scores, scaled up for batches with little signal (Chu et al., 2025).

A_i = α (s_i − mean), α = B / (number of responses in groups whose scores differ): groups without signal take no part of
the batch's gradient. Goes with `worker.actor.loss_type=gpg`. Compared with the authors' AMAP-ML/GPG, which also draws
more prompts while α is above 2 (here `algorithm.filter_groups`). verl counts responses whose score is not 0 instead.
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
    odd, scores_B = quirks(config.match), total_rewards(signals)
    groups = Groups(signals.groups_B, odd)
    telling_B = scores_B != 0 if odd.gpg_counts_scores else ~groups.silent(scores_B)
    advantages_B = len(scores_B) / max(int(telling_B.sum()), 1) * groups.centred(scores_B)
    advantages_BT = masked(advantages_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
