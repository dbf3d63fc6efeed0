"""SPIN: which responses are demonstrations and which the policy's own samples (Chen et al., 2024).

+1 on the tokens of demonstrations, which a row's column `algorithm.demonstration_key` holds and which stand in each
group in place of one sample; −1 on those of samples. `worker.actor.loss_type=spin` compares the two.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import masked
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig
from whet.errors import UserError


@advantage("spin", group=True)
def spin(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """+1 for demonstrations, −1 for samples, on every token."""
    if "demonstration" not in signals.scores:
        raise UserError("algorithm.adv_estimator=spin: the samples come without demonstrations (whet train)")
    kind_B = torch.where(signals.scores["demonstration"] > 0.5, 1.0, -1.0)
    advantages_BT = masked(kind_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
