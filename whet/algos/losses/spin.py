"""SPIN: tell demonstrations from the policy's own samples, and become likelier to write the former (Chen et al., 2024).

For every demonstration w and every sample l of its prompt L = log(1 + exp(−λ(d_w − d_l))), d = Σ_t log π/π_old, λ
`spin_lambda`, averaged over the pairs of the mini-batch. Rows with a positive advantage are demonstrations, those
with a negative one samples (`algorithm.adv_estimator=spin`); π_old, the opponent, is the policy that sampled. The two
of a pair may be in different micro-batches, so `prepare` computes dL/dd of every row from the whole mini-batch, and
the loss of a row is (dL/dd)·d: its gradient is that of L, and `actor/spin_loss` is L. `loss_avg_mode` changes
nothing.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import response_mean
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


def _slopes(inputs: LossInputs, config: ActorConfig) -> dict[str, Tensor]:
    """Return dL/dd of every row, and the row's share of L; rows without a partner have 0."""
    assert inputs.groups_B is not None, "training gives losses the groups of their rows"
    d_B = (inputs.log_ratio * inputs.mask_BT).sum(dim=1)
    kind_B = response_mean(inputs.advantages_BT, inputs.mask_BT)[:, 0]
    pairs = (inputs.groups_B[:, None] == inputs.groups_B[None, :]) & (kind_B[:, None] > 0) & (kind_B[None, :] < 0)
    count = pairs.sum().clamp(min=1)
    margins_BB = config.spin_lambda * (d_B[:, None] - d_B[None, :])
    pull_BB = torch.where(pairs, torch.sigmoid(-margins_BB), 0.0) * config.spin_lambda / count
    losses_BB = torch.where(pairs, torch.nn.functional.softplus(-margins_BB), 0.0) / count
    slope_B = pull_BB.sum(dim=0) - pull_BB.sum(dim=1)
    width = inputs.mask_BT.shape[1]
    return {"slope": slope_B[:, None].expand(-1, width), "share": losses_BB.sum(dim=1)[:, None].expand(-1, width)}


@policy_loss("spin", prepare=_slopes)
def spin(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-ratios times their slopes, summed over the mini-batch."""
    mask, log_ratio = inputs.mask_BT, inputs.log_ratio
    summed = replace(aggregate, mode="token-sum")
    # Each row's share once, on its first token.
    first = (mask.cumsum(dim=1) == 1) & mask.bool()
    return summed(inputs.weighted(inputs.prepared["slope"] * log_ratio), mask), {
        "spin_loss": summed(inputs.prepared["share"] * first, mask).detach(),
        "ppo_kl": aggregate.token_mean(-log_ratio, mask),
    }
