"""FlowRL: the target of a policy that samples responses in proportion to their reward (Zhu et al., 2025).

The policy is to match π_ref(y)^{1/|y|} · exp(β r̂) / Z, with r̂ GRPO's normalised score and β `flowrl_beta`. On every
token of response i stands its logarithm, u_i = β r̂_i + mean_t log π_ref − log Z, which `worker.actor.loss_type=flowrl`
compares with mean_t log π. The paper learns log Z with a network; here it is the mean over the prompt's responses of
β r̂ + mean_t log π_ref − mean_t log π_old, which makes the squared residuals of the group smallest (VarGrad; Richter et
al., 2020) and needs no further weights. Compared with verl's recipe flowrl: the same residual, with β = 15.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.advantages.grpo import normalised
from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("flowrl", needs=("reference",), group=True)
def flowrl(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """The log of the target distribution, per token of a response, on every token the model wrote."""
    assert signals.ref_log_probs_BT is not None, "the reference is loaded for estimators that need it"
    groups, mask_BT = Groups(signals.groups_B, quirks(config.match)), signals.mask_BT
    scores_B = normalised(total_rewards(signals), groups, by_std=True)
    target_B = config.flowrl_beta * scores_B + _response_mean(signals.ref_log_probs_BT, mask_BT)
    log_Z_B = groups.sum(target_B - _response_mean(signals.old_log_probs_BT, mask_BT)) / groups.size_B
    advantages_BT = masked((target_B - log_Z_B)[:, None], mask_BT)
    return advantages_BT, advantages_BT


def _response_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    inside = mask_BT.bool()
    return torch.where(inside, values_BT.double(), 0.0).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
