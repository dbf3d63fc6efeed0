"""Slots of a window as the host prepares them: how tokens are sampled, the device's state, the size of the batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whet.kernels import decode_state as slot_state
from whet.rollout.engines.native.sequence import Sequence


class How(NamedTuple):
    """Sampling mode of a window's tokens."""

    temperature: float | None  # of all slots; None where they differ
    filtered: bool  # whether top-k, top-p or min-p cut any slot's distribution
    tops: int = 0  # likeliest tokens to find, a power of two; 0 if no slot asks for any


def how_of(running: list[Sequence]) -> How:
    """Return how the next tokens of sequences are sampled."""
    params = [sequence.request.params for sequence in running]
    alike = all(p.temperature == params[0].temperature for p in params)
    most = max(p.top_logprobs for p in params)
    tops = 1 << (most - 1).bit_length() if most else 0
    return How(params[0].temperature if alike else None, any(p.filters for p in params), tops)


def facts_of(sequences: list[Sequence]) -> np.ndarray:
    """State (FACTS, sequences) of sequences of which all tokens are known."""
    facts = np.zeros((slot_state.FACTS, len(sequences)), dtype=np.int64)
    for i, sequence in enumerate(sequences):
        prompt, params, written = sequence.request.prompt.ids, sequence.request.params, len(sequence.ids)
        last = sequence.ids[-1] if written else prompt[-1]
        position = len(prompt) - 1 + written
        facts[:, i] = (last, position, sequence.key, written, params.max_tokens, 1, not params.ignore_eos, 0)
    return facts


def bucket(B: int, most: int) -> int:
    """The batch size that B is rounded up to: powers of two up to 64, multiples of 64 beyond."""
    size = 1 << (B - 1).bit_length() if B <= 64 else -(-B // 64) * 64
    return min(size, most)
