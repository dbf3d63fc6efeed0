"""Terms for the length of a response, after DAPO (Yu et al., 2025, arXiv:2503.14476)."""

from __future__ import annotations


def overlong(length: int, limit: int, buffer: int) -> float:
    """0 up to `limit - buffer` tokens, then a straight line to -1 at the limit, and -1 beyond."""
    expected = limit - buffer
    if length <= expected:
        return 0.0
    return max(-1.0, (expected - length) / buffer) if length <= limit else -1.0
