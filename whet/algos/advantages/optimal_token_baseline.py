"""OTB: for each token position the baseline of least variance (Li et al., 2025).

G_t = Σ_{t' ≥ t} r_{t'}, A_t = G_t − b_t, b_t = Σ_i G_t W_t / Σ_i W_t over a prompt's responses that have a token t.
W_t = Σ_{t' ≤ t} (1 − 2π + Σ_v π(v)²) is the squared norm of the gradient of the tokens so far with respect to logits.
Where only the longest response still runs there is nothing to compare with: `algorithm.otb_zero_tail`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import masked, rewards_to_go
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.algos.token_baseline import against_optimal, energy
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("optimal_token_baseline", needs=("sum_pi_squared",), group=True)
def optimal_token_baseline(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Rewards to go less the optimal baseline of their token position."""
    odd, mask_BT = quirks(config.match), signals.mask_BT
    G_BT = rewards_to_go(signals, odd)
    ends_B = (mask_BT * torch.arange(1, mask_BT.shape[1] + 1, device=mask_BT.device)).amax(dim=1)
    lengths_B = (mask_BT.sum(dim=1) if odd.otb_tail_by_count else ends_B).long()
    advantages_BT = against_optimal(
        G_BT, energy(signals), mask_BT, lengths_B, signals.groups_B, config.otb_zero_tail, odd
    )
    return advantages_BT, G_BT.float() if odd.values_outside_mask else masked(G_BT, mask_BT)
