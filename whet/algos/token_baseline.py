"""The baseline of least variance at each token position, which both optimal token baselines subtract."""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import Groups, masked
from whet.algos.quirks import Quirks
from whet.algos.registry import Signals


def energy(signals: Signals) -> Tensor:
    """W_t = Σ_{t' ≤ t} (1 − 2π + Σ_v π(v)²) over written tokens, times the square of importance weights if any."""
    assert signals.sum_pi_squared_BT is not None
    w_BT = 1 - 2 * signals.old_log_probs_BT.double().exp() + signals.sum_pi_squared_BT.double()
    if signals.weights_BT is not None:
        w_BT = w_BT * signals.weights_BT.double().square()
    return torch.where(signals.mask_BT.bool(), w_BT, 0.0).cumsum(dim=1)


def against_optimal(
    G_BT: Tensor, W_BT: Tensor, mask_BT: Tensor, lengths_B: Tensor, groups_B: Tensor, zero_tail: bool, odd: Quirks
) -> Tensor:
    """G − b under the mask, b = Σ_i G W / Σ_i W for each group and column.

    Exactly 0 where all returns of a group are the same, and for a prompt with one response that has tokens.
    """
    advantages_BT, written_BT = torch.zeros_like(G_BT), mask_BT.bool()
    for rows in Groups(groups_B).rows():
        rows = rows[lengths_B[rows] > 0]
        G, W = G_BT[rows], torch.where(written_BT[rows], W_BT[rows], 0.0)
        if len(rows) > 1:
            returns = G[written_BT[rows]]
            if odd.equal_groups_not_zero or torch.any(returns != returns[0]):
                advantages_BT[rows] = G - _baseline(G, W, lengths_B[rows], zero_tail)
        elif odd.singleton_keeps_score:
            advantages_BT[rows] = G
    return masked(advantages_BT, mask_BT)


def _baseline(G_NT: Tensor, W_NT: Tensor, lengths_N: Tensor, zero_tail: bool) -> Tensor:
    """b of one group, for each of its rows; 0 where only the longest still runs, if wanted."""
    b_T = (G_NT * W_NT).sum(dim=0) / (W_NT.sum(dim=0) + 1e-8)
    b_NT = b_T.repeat(len(G_NT), 1)
    longest, second = lengths_N.topk(2).values.tolist()
    if zero_tail and longest > second:
        b_NT[lengths_N.argmax(), second:] = 0.0
    return b_NT
