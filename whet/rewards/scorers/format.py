"""A term for the form of a response alone, to combine with others: think tags, then a box or answer tags.

Each pair of tags must appear once: a response that repeats them has not the form.
"""

from __future__ import annotations

from typing import Any

from whet.errors import UserError
from whet.rewards.answers.extract import after_thoughts, boxed_answer
from whet.rewards.answers.forms import is_think_answer, is_think_box
from whet.rewards.registry import Score, Scorer, check_match

FORMS = ("think_box", "think_answer", "think", "box", "answer")


def score(response: str, ground_truth: Any = None, *, match: str = "whet", form: str = "think_box") -> Score:
    """1 for the form, 0 for another."""
    check_match(match, "format", SCORER.matches)
    if form not in FORMS:
        raise UserError(f"form={form}: choose one of {', '.join(FORMS)}")
    right = _has(response.strip(), form)
    return {"overall": float(right), "format": float(right)}


def _has(text: str, form: str) -> bool:
    tags = [tag for tag in ("think", "answer") if tag in form]
    if any(text.count(f"<{tag}>") != 1 or text.count(f"</{tag}>") != 1 for tag in tags):
        return False
    if form == "think_answer":
        return is_think_answer(text)
    if form == "answer":
        return text.index("<answer>") < text.index("</answer>")
    if form == "box":
        return boxed_answer(text) is not None
    if not text.startswith("<think>"):
        return False
    if form == "think":
        return bool(after_thoughts(text).strip())
    return is_think_box(text) and boxed_answer(after_thoughts(text)) is not None


SCORER = Scorer(
    score,
    data_sources=(),
    summary=f"1 for the form that `form` names ({', '.join(FORMS)}), whatever the answer",
)
