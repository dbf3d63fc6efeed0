"""OTB for responses with tools in between: the k-th token that the model wrote is compared with the k-th of the others.

The equations are those of optimal_token_baseline.py; before them, the tokens of each response that the model did not
write are taken out, so that positions line up whatever the tools answered (Li et al., 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import masked, rewards_to_go
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.algos.token_baseline import against_optimal, energy
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("tir_optimal_token_baseline", needs=("sum_pi_squared",), group=True)
def tir_optimal_token_baseline(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Rewards to go less the optimal baseline of their position among written tokens."""
    odd, mask_BT = quirks(config.match), signals.mask_BT
    G_BT = rewards_to_go(signals, odd)
    order_BT = mask_BT.argsort(dim=1, descending=True, stable=True)  # written tokens first, in their order
    G, W, mask = (values.gather(1, order_BT) for values in (G_BT, energy(signals), mask_BT))
    lengths_B = mask_BT.sum(dim=1).long()
    compact_BT = against_optimal(G, W, mask, lengths_B, signals.groups_B, config.otb_zero_tail, odd)
    advantages_BT = torch.zeros_like(compact_BT).scatter(1, order_BT, compact_BT)
    return advantages_BT, G_BT.float() if odd.values_outside_mask else masked(G_BT, mask_BT)
