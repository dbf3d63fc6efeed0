"""DAPO's soft penalty for responses that come close to the limit of their length (Yu et al., 2025, arXiv:2503.14476).

    penalty = min(0, −factor · (L − (max_tokens − len)) / len)

Nothing up to max_tokens − len tokens, then a straight line down to −factor at max_tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.config.schema.reward import OverlongBufferConfig
from whet.types import Sample


def penalise_overlong(samples: Sequence[Sample], config: OverlongBufferConfig, max_tokens: int) -> None:
    """Add the penalty to `overall` of scored samples, and note it as `overlong_reward` and `overlong` (0 or 1)."""
    if not config.enable:
        return
    for sample in samples:
        excess = len(sample.ids) - (max_tokens - config.len)
        penalty = -max(excess, 0) / config.len * config.penalty_factor
        sample.scores["overall"] += penalty
        sample.scores |= {"overlong_reward": penalty, "overlong": float(excess > 0)}
