"""Scores of a sample: plain finite floats by name, `overall` among them.

`check_scores` runs in the worker (`returned.py`) and in the trainer too, because what the worker says of itself is not
believed.
"""

from __future__ import annotations

from math import isfinite

Scores = dict[str, float]

LARGEST = 1e15  # advantages square rewards and sum them in single precision, which ends at 3.4e38
MAX_SCORES = 256
MAX_NAME = 100  # characters
# Metrics that count failures; a score of that name would stand in their place.
RESERVED = frozenset({"failed", "raised", "timeout", "died", "bad_result"})


def check_scores(scores: Scores) -> str:
    """Say what makes these no scores of a sample; empty when nothing does."""
    if "overall" not in scores:
        return "the result needs a number called `overall`"
    if len(scores) > MAX_SCORES:
        return f"a sample may have {MAX_SCORES} scores, not {len(scores)}"
    for name, number in scores.items():
        if name in RESERVED:
            return f"{name!r} counts failed samples (reward/{name}), so no score can have that name"
        if not name or len(name) > MAX_NAME or not name.isprintable():
            return f"{name[:MAX_NAME]!a} cannot name a score: 1 to {MAX_NAME} printable characters can"
        if not isfinite(number) or abs(number) > LARGEST:
            return f"the score must be finite and within ±{LARGEST:g}"
    return ""
