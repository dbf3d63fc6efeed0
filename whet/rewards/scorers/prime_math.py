r"""PRIME's mathematics (Numina's subsets): an answer in a box, or stated in words.

`match=verl` is verl's prime_math with its tolerances, but for the text that the original runs as Python.
"""

from __future__ import annotations

from typing import Any

from whet.rewards.answers.equal import same_as_any
from whet.rewards.answers.extract import after_thoughts, final_answer, stated_answer, tagged_answer
from whet.rewards.answers.process import maths
from whet.rewards.answers.truths import accepted
from whet.rewards.registry import Score, Scorer, check_match

LONGEST = 100  # characters of an answer in words
_CUT_AFTER = ("answer:", "answer is", "answers are")
_CUT_BEFORE = ("is answer", "is the answer", "are answers", "are the answers")
_LAST_CUTS = ("be ", "is ", "are ", "=", ": ", "get ", "be\n", "is\n", "are\n", ":\n", "get\n")


def score(response: str, ground_truth: Any, *, match: str = "whet") -> Score:
    """1 for the right answer, 0 for another; `format` is for the steps and the box that PRIME asks for."""
    check_match(match, "prime_math", SCORER.matches)
    form = "Step 2:" in response and "\\box" in response
    if match == "verl":
        truth, pred = str(ground_truth), _extracted(response)
        right = maths().verdict("grade", pred, truth, "prime")
        form = form or right  # the original says so
        right = right or maths().verdict("prime_equal", pred, truth)
        return {"overall": float(right), "accuracy": float(right), "format": float(form), "pred": pred}
    found = _answer(response)
    right = same_as_any(found, accepted(ground_truth))
    return {"overall": float(right), "accuracy": float(right), "format": float(form), "pred": found}


def _answer(response: str) -> str | None:
    """The answer in a box, in tags or behind "answer is"; else in the words that PRIME's prompts ask for."""
    behind = after_thoughts(response)
    if "\\boxed" in response or (found := tagged_answer(behind) or stated_answer(behind)) is None:
        words = "" if "\\boxed" in response else _extracted(behind[-2_000:])
        return words if 0 < len(words) <= LONGEST else final_answer(response)
    return found


def _extracted(text: str) -> str:
    """The answer as the original cuts it out of a response."""
    for marker in _CUT_AFTER:
        if (at := text.lower().rfind(marker)) != -1:
            text = text[at + len(marker) :].strip()
    for marker in _CUT_BEFORE:
        if (at := text.lower().rfind(marker)) != -1:
            text = text[:at].strip()
    text = _last_box(text) or text
    if (at := text.lower().rfind(". ")) != -1:
        text = text[:at].strip()
    for marker in _LAST_CUTS:
        if (at := text.lower().rfind(marker)) != -1:
            text = text[at + len(marker) :].strip()
    return text


def _last_box(text: str) -> str | None:
    start = text.rfind("\\boxed")
    if start < 0 and (start := text.rfind("\\fbox")) < 0:
        return None
    depth, opened = 0, -1
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
            opened = at if opened < 0 else opened
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return text[opened + 1 : at].strip() if opened >= 0 else None
    return None


SCORER = Scorer(
    score,
    data_sources=(
        "numina_aops_forum",
        "numina_synthetic_math",
        "numina_amc_aime",
        "numina_synthetic_amc",
        "numina_cn_k12",
        "numina_olympiads",
    ),
    summary="a box, or the answer in words, compared by value, then by math-verify",
    matches=("verl",),
    needs=("math",),
)
