"""OPO: scores against the baseline of least variance for a policy trained on-policy (Hao et al., 2025).

A_i = s_i − Σ_j l_j s_j / Σ_j l_j over the responses of a prompt, l_j their lengths in tokens: long responses have large
gradients, so the baseline lies closer to their scores. No division by the standard deviation.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("opo", group=True)
def opo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Scores less their group's length-weighted mean, on every token the model wrote."""
    groups = Groups(signals.groups_B, quirks(config.match))
    scores_B, lengths_B = total_rewards(signals), signals.mask_BT.double().sum(dim=1)
    baselines_B = groups.sum(lengths_B * scores_B) / groups.sum(lengths_B).clamp(min=1)
    advantages_BT = masked(groups.against(baselines_B, scores_B)[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
