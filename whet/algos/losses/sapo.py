"""SAPO: a soft gate in place of the hard clip (Gao et al., 2025).

L = −A·(4/τ)·σ(τ(ρ − 1)), with τ = tau_positive where A > 0 and tau_negative elsewhere. At ρ = 1 the gradient is PPO's;
it fades smoothly as the ratio leaves 1, faster where A < 0. The paper's mean is loss_avg_mode=seq.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import ratio_of
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("sapo")
def sapo(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Advantages through a sigmoid of the ratio."""
    if aggregate.quirks.always_sequence_mean:
        aggregate = replace(aggregate, mode="seq-mean-token-mean")
    A, mask = inputs.advantages_BT, inputs.mask_BT
    tau = torch.where(A > 0, config.tau_positive, config.tau_negative)
    gate = torch.sigmoid(tau * (ratio_of(inputs.log_ratio) - 1.0)) * 4.0 / tau
    return aggregate(inputs.weighted(-A * gate), mask), {
        "ppo_kl": aggregate.token_mean(-inputs.log_ratio, mask),
    }
