"""GRPO for pass@k: only the best response of a prompt counts, by how far it beats the second (Tang et al., 2025).

A_best = (s_best − s_second) / (std + 1e-6), without the division under `algorithm.norm_adv_by_std=false`; 0 for all
others, for a tie at the top and for a prompt with one response.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.groups import Groups, masked, total_rewards
from whet.algos.quirks import quirks
from whet.algos.registry import Signals, advantage
from whet.config.schema.algorithm import AlgorithmConfig


@advantage("grpo_passk", group=True)
def grpo_passk(signals: Signals, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """The lead of each prompt's best response, on every token of it."""
    scores_B = total_rewards(signals)
    groups = Groups(signals.groups_B)
    std_B = groups.std(groups.centred(scores_B))
    advantages_B = scores_B.clone() if quirks(config.match).passk_keeps_other_scores else torch.zeros_like(scores_B)
    for rows in groups.rows():
        if len(rows) > 1:
            (best, second), (winner, _) = scores_B[rows].topk(2)
            lead = (best - second) / (std_B[rows[winner]] + 1e-6) if config.norm_adv_by_std else best - second
            advantages_B[rows[winner]] = lead
    advantages_BT = masked(advantages_B[:, None], signals.mask_BT)
    return advantages_BT, advantages_BT
