"""LUSPO: GSPO's loss times the response's length (Liu et al., 2026, Length-Unbiased Sequence Policy Optimization).

L = mean_i |y_i| · max(−A s_i, −A·clip(s_i, 1−ε_low, 1+ε_high)) with s_i = exp(mean_t log π/π_old). GSPO's mean over a
response's tokens makes each token of a long response count less, and training shortens responses; times |y_i| every
token counts alike. The mean is part of the loss: `loss_avg_mode` changes nothing. The paper's bounds are 2e-3 and
2.5e-3. Compared with TRL's numbers; the authors' code could not be had.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.losses.surrogate import clipped_surrogate, ratio_of, response_mean
from whet.algos.registry import LossInputs, policy_loss
from whet.config.schema.actor import ActorConfig


@policy_loss("luspo")
def luspo(inputs: LossInputs, config: ActorConfig, aggregate: Aggregator) -> tuple[Tensor, dict[str, Tensor]]:
    """GSPO's loss on every token, summed over a response: |y_i| times one loss of the response."""
    ratio = ratio_of(response_mean(inputs.log_ratio, inputs.mask_BT)).expand_as(inputs.mask_BT)
    return clipped_surrogate(ratio, inputs, config, replace(aggregate, mode="seq-mean-token-sum"), None)
