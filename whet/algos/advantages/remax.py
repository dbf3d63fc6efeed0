"""ReMax: a response's score less that of the greedy response to its prompt (Li et al., 2023).

G_t = Σ_{t' ≥ t} r_{t'}, A_t = G_t − b with b the greedy response's score, which costs one more rollout per prompt.
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.groups import masked, rewards_to_go
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("remax", needs=("baselines",))
def remax(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Rewards to go less the greedy response's score."""
    assert signals.baselines_B is not None
    odd = quirks(config.match)
    returns_BT = rewards_to_go(signals, odd)
    advantages_BT = returns_BT - signals.baselines_B[:, None].double() * signals.mask_BT
    if odd.values_outside_mask:
        return advantages_BT.float(), returns_BT.float()
    return masked(advantages_BT, signals.mask_BT), masked(returns_BT, signals.mask_BT)
