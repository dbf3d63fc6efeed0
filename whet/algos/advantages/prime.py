"""PRIME: implicit process rewards and the outcome, each against the other responses (Cui et al., 2025).

A_t = n/(n−1) · (Σ_{s ≥ t} γ^{s−t} [r_φ(y_s) − mean_j r̄_φ(y_j)] · `prime.coef` + s_i − mean_j s_j), whitened over the
batch, with r_φ(y_s) the process reward of a token, r̄_φ(y_j) the mean over response j of the n, and s the score.
For a whole response that is its mean less that of the others, as in RLOO. The reward model is trained on this step's
outcomes first (`whet/algos/implicit_reward.py`). One response has nothing to be compared with: 0.
`prime.norm=batch_norm` divides process rewards by the batch's largest |Σ_{s ≥ t} r_φ(y_s)|, so that returns of both
kinds are of one size whatever β is.

Compared with the numbers of the authors' PRIME-RL/PRIME; verl's recipe computes the same. The paper writes
r_φ(y_s) − mean_{j≠i} r̄_φ(y_j) for a token, which is less by (r_φ(y_s) − r̄_φ(y_i))/(n−1): nothing over a response.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.algos.whiten import whiten
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("prime", needs=("reference", "process_rewards"), group=True)
def prime(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Returns of centred process rewards plus centred scores, whitened."""
    assert signals.process_rewards_BT is not None
    mask_BT, groups = signals.mask_BT, Groups(signals.groups_B, quirks(config.match))
    inside = mask_BT.bool()
    rewards_BT = torch.where(inside, signals.process_rewards_BT.double(), 0.0)
    if config.prime.norm == "batch_norm":
        rewards_BT = rewards_BT / (rewards_BT.flip(1).cumsum(dim=1).abs().max() + 1e-6)
    mean_B = rewards_BT.sum(dim=1) / inside.sum(dim=1).clamp(min=1)
    centred_BT = torch.where(inside, rewards_BT - (groups.sum(mean_B) / groups.size_B)[:, None], 0.0)
    returns_BT = torch.zeros_like(centred_BT)
    later_B = centred_BT.new_zeros(len(centred_BT))
    for t in reversed(range(centred_BT.shape[1])):  # a tool's tokens take no step of the discount
        here_B = centred_BT[:, t] + config.gamma * later_B
        later_B = torch.where(inside[:, t], here_B, later_B)
        returns_BT[:, t] = later_B
    scale_B1 = (groups.size_B / (groups.size_B - 1).clamp(min=1))[:, None]
    alone_B1 = (groups.size_B == 1)[:, None]
    total_BT = scale_B1 * (config.prime.coef * returns_BT + groups.centred(total_rewards(signals))[:, None])
    total_BT = torch.where(inside & ~alone_B1, total_BT, 0.0)
    advantages_BT = masked(torch.where(alone_B1, 0.0, whiten(total_BT, mask_BT)), mask_BT)
    return advantages_BT, masked(total_BT, mask_BT)
