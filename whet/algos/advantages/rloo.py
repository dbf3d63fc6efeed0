"""RLOO: a response's score less the mean of the others of its prompt (Ahmadian et al., 2024).

A_i = s_i − mean of s_j, j ≠ i. A prompt with one response has nothing to compare with: 0.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import NONE, Quirks, quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("rloo", group=True)
def rloo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Leave-one-out scores on every token the model wrote."""
    return _leave_one_out(signals, quirks(config.match))


@advantage("rloo_vectorized", group=True)
def rloo_vectorized(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """The same; in no package does it keep the raw score of a single response."""
    return _leave_one_out(signals, NONE)


def _leave_one_out(signals: Signals, quirks: Quirks) -> tuple[Tensor, Tensor]:
    groups = Groups(signals.groups_B, quirks)
    # s_i − (Σ s − s_i)/(n − 1) = (s_i − mean)·n/(n − 1)
    advantages_B = groups.centred(total_rewards(signals)) * groups.size_B / (groups.size_B - 1).clamp(min=1)
    advantages_BT = masked(advantages_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
