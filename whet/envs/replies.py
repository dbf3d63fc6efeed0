"""The part of a turn that an environment reads as the policy's answer."""

from __future__ import annotations

import re

THOUGHT_END = "</think>"


def answer_in(turn: str, tag: str) -> str:
    """Return the inside of the last `<tag>...</tag>` behind the reasoning; without tags, all that follows it."""
    said = turn.rpartition(THOUGHT_END)[2]
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", said, flags=re.DOTALL | re.IGNORECASE)
    return (found[-1] if found else said).strip()
