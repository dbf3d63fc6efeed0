"""PF-PPO: a step's samples drawn anew by their scores, with replacement (Shen & Zhang, 2024, arXiv:2409.06957).

P(i) ∝ w_i + 1e-8,   w_i = |s_i|^p (pow), 1 for best and worst and 0 between (max_min), 0.4 for the best and 0.1
for the others (max_random)
"""

from __future__ import annotations

import random

import torch
from torch import Tensor

from whet.config.schema.algorithm import PFPPOConfig


def resampling_weights(scores_B: Tensor, config: PFPPOConfig) -> Tensor:
    """Return each sample's probability of being drawn, up to a factor."""
    best, worst = scores_B.max(), scores_B.min()
    if config.reweight_method == "pow":
        weights_B = scores_B.abs() ** config.weight_pow
    elif config.reweight_method == "max_min":
        weights_B = ((scores_B == best) | (scores_B == worst)).float()
    else:
        weights_B = torch.where(scores_B == best, 0.4, 0.1)
    return weights_B + 1e-8


def resample_rows(scores_B: Tensor, config: PFPPOConfig, seed: int, step: int) -> list[int]:
    """B rows drawn with replacement, a function of (seed, step); in order, so that a prompt's samples stay together."""
    # A string seed is hashed with SHA-512, so neighbouring steps draw unrelated rows.
    generator = torch.Generator().manual_seed(random.Random(f"pf_ppo/{seed}/{step}").getrandbits(63))
    weights_B = resampling_weights(scores_B, config)
    rows_B = torch.multinomial(weights_B, len(scores_B), replacement=True, generator=generator)
    return sorted(rows_B.tolist())
