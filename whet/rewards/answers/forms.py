"""Forms that prompts ask for: think tags, then a box or answer tags. Each test takes linear time."""

from __future__ import annotations

import re


def is_think_box(text: str) -> bool:
    """True for a think tag at the beginning, its end, and a closed box somewhere behind it."""
    if not text.startswith("<think>"):
        return False
    end = text.find("</think>", len("<think>"))
    box = text.find("\\boxed{", end + len("</think>")) if end >= 0 else -1
    return box >= 0 and text.find("}", box) >= 0


def is_think_answer(text: str) -> bool:
    """True for a think pair, blanks, an answer pair, and nothing else; contents may hold further tags."""
    if not text.startswith("<think>") or not text.endswith("</answer>"):
        return False
    # Some closing think tag must be followed by an opening answer tag that begins before the closing one at the end.
    between = re.compile(r"</think>\s*<answer>")
    found = between.search(text, len("<think>"))
    return found is not None and found.end() <= len(text) - len("</answer>")


def without_blanks_at_tags(text: str) -> str:
    """Text without blanks around `<`, `>` and `/`, as EasyR1's function for mathematics reads it."""
    return re.sub(r"(?<!\s)\s+(?=[<>/])|(?<=[<>/])\s+", "", text)
