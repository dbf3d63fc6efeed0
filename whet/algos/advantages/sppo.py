"""SPPO: the share of the prompt's responses that a response beats, less a half (Wu et al., 2024).

A_i = P̂(y_i ≻ π) − ½ with P̂ the mean over the prompt's n responses j, itself included, of 1 where s_i > s_j, ½ where
they are equal, 0 elsewhere: an estimate of the chance to win against the policy itself. Scores matter by their order
alone. Goes with `worker.actor.loss_type=sppo`.

Compared with the authors' uclaml/SPPO: the same mean over all n; a preference model gives it chances between 0 and 1,
and only the best and the worst of five responses are trained on. verl's recipe sppo has the raw score less
(1/η) log mean exp(η s) over the batch in place of P̂ − ½.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("sppo", group=True)
def sppo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Chances to win less a half, on every token the model wrote."""
    groups, scores_B = Groups(signals.groups_B, quirks(config.match)), total_rewards(signals)
    chances_B = torch.zeros_like(scores_B)
    for rows in groups.rows():
        ours, theirs = scores_B[rows][:, None], scores_B[rows][None, :]
        wins_nn = (ours > theirs).double() + 0.5 * (ours == theirs)
        chances_B[rows] = wins_nn.mean(dim=1) - 0.5
    advantages_BT = masked(chances_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
