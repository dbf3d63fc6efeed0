"""R1's two rewards: the answer is right, and the response has the form <think>...</think> and then an answer."""

import re

from whet.rewards.answers.extract import boxed_answer

FORM = re.compile(r"\s*<think>(.+?)</think>\s*(\S.*)", re.DOTALL)


def compute_score(response: str, answer: str, format_weight: float = 0.1) -> dict:
    """Return 1 - format_weight for the right answer in the right form, and format_weight for the form.

    The answer is what stands in the last box behind the thoughts; without a box, all that stands there.
    """
    found = FORM.fullmatch(response)
    behind = found[2].strip() if found else ""
    said = boxed_answer(behind) or behind
    right = float(found is not None and _plain(said) == _plain(answer))
    form = float(found is not None and "<think>" not in behind and "</think>" not in behind)
    return {"overall": (1 - format_weight) * right + format_weight * form, "accuracy": right, "format": form}


def _plain(answer: str) -> str:
    """Return an answer without what does not change it."""
    return re.sub(r"\s+|\\[,;! ]|\$", "", str(answer)).rstrip(".")
