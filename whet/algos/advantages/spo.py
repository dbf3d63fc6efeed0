"""SPO: a sample's reward less what its prompt has earned before, normalised over the batch (Xu & Ding, 2025).

A_i = (d_i − mean d)/(std d + 1e-6) over the batch's responses, d_i = s_i − v̂(x). v̂ is the prompt's running mean reward
before this step, kept from step to step (`data.curriculum.decay`); one sample a prompt is enough, and no group is
without signal. The paper forgets by the KL divergence since the last visit; here by a constant factor a visit.

Compared with verl's recipe spo: the same advantage, with 1e-8 added to the deviation. Its v̂ is α/(α + β), each ρ times
itself plus what was right and wrong, from ½ and ½ or from samples drawn before training; here the first ½ is the mean
reward and is not forgotten.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import masked, total_rewards
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig
from whet.errors import UserError


@advantage("spo")
def spo(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Rewards less expected ones, normalised over all responses, on every token the model wrote."""
    if "expected_reward" not in signals.scores:
        raise UserError("algorithm.adv_estimator=spo: the samples come without what was expected of them (whet train)")
    gains_B = total_rewards(signals) - signals.scores["expected_reward"].double()
    centred_B = gains_B - gains_B.mean()
    spread = centred_B.std() if len(centred_B) > 1 else torch.zeros((), dtype=torch.float64)
    advantages_BT = masked((centred_B / (spread + 1e-6))[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
