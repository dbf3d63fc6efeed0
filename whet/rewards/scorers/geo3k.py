r"""Geometry3K and other questions whose prompt asks for think tags and a box.

`match=verl` is verl's geo3k, `match=easyr1` and `vppo` EasyR1's function for mathematics; both grade by mathruler.
"""

from __future__ import annotations

from typing import Any

from whet.errors import UserError
from whet.rewards.answers.equal import same_as_any
from whet.rewards.answers.extract import after_thoughts, boxed_answer, final_answer
from whet.rewards.answers.forms import is_think_box, without_blanks_at_tags
from whet.rewards.answers.process import maths
from whet.rewards.answers.truths import accepted
from whet.rewards.registry import Score, Scorer, check_match


def score(
    response: str,
    ground_truth: Any,
    *,
    match: str = "whet",
    format_weight: float = 0.1,
    use_boxed: bool = True,
) -> Score:
    """(1 − w) · accuracy + w · format."""
    check_match(match, "geo3k", SCORER.matches)
    if not 0 <= format_weight <= 1:
        raise UserError(f"format_weight={format_weight}: must lie between 0 and 1")
    if match == "whet":
        accuracy, form = _whet(response, ground_truth, use_boxed), is_think_box(response.strip())
    else:
        text = response if match == "verl" else without_blanks_at_tags(response)
        accuracy = maths().verdict("grade", _mathruler_box(text) if use_boxed else text, ground_truth)
        form = is_think_box(text)
    overall = (1 - format_weight) * accuracy + format_weight * form
    return {"overall": overall, "accuracy": float(accuracy), "format": float(form)}


def _whet(response: str, truth: Any, use_boxed: bool) -> bool:
    if use_boxed:
        said = boxed_answer(after_thoughts(response)) or boxed_answer(response)
    else:
        said = final_answer(response)
    return same_as_any(said, accepted(truth))


def _mathruler_box(text: str) -> str:
    """Content of the last box, or the word that mathruler takes for an answer where there is none."""
    start = text.rfind("\\boxed{")
    if start >= 0:
        depth, begin = 0, start + len("\\boxed{")
        for at in range(begin, len(text)):
            depth += (text[at] == "{") - (text[at] == "}")
            if depth < 0:
                return text[begin:at].strip()
    return "None"


SCORER = Scorer(
    score,
    data_sources=("hiyouga/geometry3k", "hiyouga/math12k", "geo3k", "geometry3k"),
    summary="the last box, compared by value, then by math-verify, with a term for `<think>` tags",
    matches=("verl", "easyr1", "vppo"),
    needs=("math",),
)
