"""RAE, role-conditioned advantages for self-play (Liu et al., 2025, SPIRAL).

A = R(τ) − b_role, then b ← α·b + (1 − α)·R(τ); α is `rae_decay`, and b starts at 0. Roles of a game win with
different chances, so one baseline for all would reward who has the better seat. The role is the row's column `rae_key`,
and a column `data_source` names the game.

As in the authors' spiral-rl/spiral, b is taken before the episode is counted, which leaves the gradient unbiased. The
paper's equation counts it first; its advantages are α times as large: R − (α·b + (1 − α)·R) = α·(R − b).
"""

from __future__ import annotations

from torch import Tensor

from whet.algos.groups import masked, total_rewards
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig
from whet.errors import UserError


@advantage("rae")
def rae(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Rewards less the running mean of their role, on every token the model wrote."""
    if "role_baseline" not in signals.scores:
        raise UserError("algorithm.adv_estimator=rae: the samples come without a baseline of their role (whet train)")
    gains_B = total_rewards(signals) - signals.scores["role_baseline"].double()
    advantages_BT = masked(gains_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
