"""VESPO: REINFORCE with a soft weight of the whole response's ratio (Shen et al., 2026, arXiv:2602.10693).

L = −sg(φ(W_i))·A·log π on every token of response i, where W_i = Π_t π/π_old is not normalised by length and
φ(W) = W^c1 · exp(c2·(1 − W)), so that φ(1) = 1. c1 and c2 are `vespo_positive` where A ≥ 0, else
`vespo_negative`. φ falls to 0 on both sides: a response that became much likelier or unlikelier counts little.
Compared with the authors' FloyedShen/VESPO: the same φ, defaults and bound of log W.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig

_MOST = 20.0  # bound on |log W|, beyond which φ is 0 in fp32


@policy_loss("vespo")
def vespo(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Advantages times log-probs, weighted by φ of the response's ratio."""
    A, mask = inputs.advantages_BT, inputs.mask_BT
    log_W_B1 = inputs.log_ratio.detach().sum(dim=1, keepdim=True).clamp(-_MOST, _MOST)  # 0 outside the mask
    c1, c2 = (torch.where(A >= 0, *pair) for pair in zip(config.vespo_positive, config.vespo_negative, strict=True))
    phi_BT = (c1 * log_W_B1 + c2 * (1.0 - log_W_B1.exp())).exp()
    return aggregate(inputs.weighted(-phi_BT * A * inputs.log_probs_BT), mask), {
        "vespo_weight": aggregate.token_mean(phi_BT, mask),
        "ppo_kl": aggregate.token_mean(-inputs.log_ratio, mask),
    }
