"""VESPO: REINFORCE with a soft weight of the whole response's ratio (Shen et al., 2026, arXiv:2602.10693).

L = −sg(φ(W_i))·A·log π on every token of response i, where W_i = Π_t π/π_old is not normalised by length and
φ(W) = W^c1 · exp(c2·(1 − W)), so that φ(1) = 1. c1 and c2 are `vespo_positive` where A ≥ 0, else
`vespo_negative`. φ falls to 0 on both sides: a response that became much likelier or unlikelier counts little.
Importance weights of a rollout correction are factors of W, which is then the ratio to the policy that sampled, and
not of the loss. Compared with the numbers of the authors' FloyedShen/VESPO and of TRL.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig

_MOST = 20.0  # bound on |log W|, beyond which φ is 0 in fp32
_LEAST = 1e-8  # importance weights below, such as those that IcePop sets to 0, count as this


@policy_loss("vespo")
def vespo(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """Advantages times log-probs, weighted by φ of the response's ratio."""
    A, mask = inputs.advantages_BT, inputs.mask_BT
    log_ratio_BT = inputs.log_ratio.detach()  # 0 outside the mask
    if inputs.weights_BT is not None:
        log_ratio_BT = log_ratio_BT + torch.where(mask.bool(), inputs.weights_BT, 1.0).clamp(min=_LEAST).log()
    log_W_B1 = log_ratio_BT.sum(dim=1, keepdim=True).clamp(-_MOST, _MOST)
    c1, c2 = (torch.where(A >= 0, *pair) for pair in zip(config.vespo_positive, config.vespo_negative, strict=True))
    phi_BT = (c1 * log_W_B1 + c2 * (1.0 - log_W_B1.exp())).exp()
    return aggregate(-phi_BT * A * inputs.log_probs_BT, mask), {
        "vespo_weight": aggregate.token_mean(phi_BT, mask),
        "ppo_kl": aggregate.token_mean(-inputs.log_ratio, mask),
    }
