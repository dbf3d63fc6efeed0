"""GiGPO: groups of episodes, and within them groups of turns that were taken in the same state (Feng et al., 2025).

A = A^E + ω A^S with ω `gigpo_step_weight`. A^E = (R(τ) − mean)/(std + 1e-6) over the prompt's episodes, as GRPO has it.
A^S is the same over all turns of these episodes that began in the same state, of R_k = Σ_{j ≥ k} γ^{j−k} r_j, the
discounted rewards from turn k on; 0 for a state that only one turn has seen. `norm_adv_by_std=false` leaves out both
divisions (the paper's F_norm = 1). States are compared as `gigpo_anchor` says.

Compared with the authors' langfengQ/verl-agent, read in a fork: the same A^S; its mean and std of A^E go over turns by
default, so that long episodes count more often, and here over episodes as in the paper's equation 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.advantages.grpo import normalised
from whet.algos.groups import Groups, earned_rewards, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("gigpo", needs=("states",), group=True)
def gigpo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Advantages of episodes plus those of turns from equal states, on every token of the turn."""
    assert signals.states_BT is not None
    odd, states_BT = quirks(config.match), signals.states_BT
    episodes_B = normalised(total_rewards(signals), Groups(signals.groups_B, odd), config.norm_adv_by_std)
    # 1. Turns: K of them in all, each token with the number of its turn, -1 outside.
    inside_BT = states_BT >= 0
    begins_BT = inside_BT & ~torch.nn.functional.pad(inside_BT, (1, 0))[:, :-1]
    turns_BT = torch.where(inside_BT, begins_BT.flatten().cumsum(0).view_as(states_BT) - 1, -1)
    rows_K, columns_K = begins_BT.nonzero(as_tuple=True)
    steps_BT = torch.zeros_like(turns_BT, dtype=torch.float64)
    if len(rows_K):
        # 2. Rewards of each turn, then discounted sums from it to the end of its episode.
        rewards_BT = earned_rewards(signals, odd)
        earned_K = torch.zeros(len(rows_K), dtype=torch.float64, device=turns_BT.device)
        earned_K.index_add_(0, turns_BT[inside_BT], rewards_BT[inside_BT])
        returns_K = earned_K.clone()
        for k in reversed(range(len(rows_K) - 1)):
            if rows_K[k] == rows_K[k + 1]:
                returns_K[k] += config.gamma * returns_K[k + 1]
        # 3. Compare turns from equal states.
        steps_K = normalised(returns_K, Groups(states_BT[rows_K, columns_K], odd), config.norm_adv_by_std)
        steps_BT[inside_BT] = steps_K[turns_BT[inside_BT]]
    total_BT = episodes_B[:, None] + config.gigpo_step_weight * steps_BT
    advantages_BT = masked(total_BT, signals.mask_BT)
    return advantages_BT, advantages_BT
