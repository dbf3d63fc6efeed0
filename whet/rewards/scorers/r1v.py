r"""Questions about pictures whose prompt asks for think and answer tags (R1-V, CLEVR counting).

`match=easyr1` and `vppo` are EasyR1's function (the first answer on one line, mathruler), `match=r1v` the accuracy of
R1-V's own script (math-verify with the prediction as truth).
"""

from __future__ import annotations

from typing import Any

from whet.errors import UserError
from whet.rewards.answers.equal import same_as_any
from whet.rewards.answers.extract import after_thoughts, boxed_answer, tagged_answer
from whet.rewards.answers.forms import is_think_answer
from whet.rewards.answers.process import maths
from whet.rewards.answers.truths import accepted
from whet.rewards.registry import Score, Scorer, check_match

LONGEST = 300  # characters of a response without tags that counts as an answer


def score(response: str, ground_truth: Any, *, match: str = "whet", format_weight: float = 0.5) -> Score:
    """(1 − w) · accuracy + w · format; the accuracy alone for `match=r1v`."""
    check_match(match, "r1v", SCORER.matches)
    if not 0 <= format_weight <= 1:
        raise UserError(f"format_weight={format_weight}: must lie between 0 and 1")
    if match == "r1v":
        right = _r1v(response, ground_truth)
        return {"overall": float(right), "accuracy": float(right)}
    if match == "whet":
        form, right = is_think_answer(response.strip()), _whet(response, ground_truth)
    else:
        form, right = is_think_answer(response), _easyr1(response, ground_truth)
    overall = (1 - format_weight) * right + format_weight * form
    return {"overall": overall, "accuracy": float(right), "format": float(form)}


def _whet(response: str, truth: Any) -> bool:
    for text in (after_thoughts(response), response):
        if (said := tagged_answer(text)) is not None:
            return same_as_any(boxed_answer(said) or said, _untagged(truth))
    said = boxed_answer(response) or after_thoughts(response).strip()
    return len(said) <= LONGEST and same_as_any(said, _untagged(truth))


def _untagged(truth: Any) -> list[str]:
    return [tagged_answer(each) or each for each in accepted(truth)]


def _first(text: str) -> str:
    """The first answer on one line, or the whole text."""
    for line in text.split("\n"):
        _, opened, rest = line.partition("<answer>")
        inner, closed, _ = rest.partition("</answer>")
        if opened and closed:
            return inner.strip()
    return text.strip()


def _easyr1(response: str, truth: Any) -> bool:
    return isinstance(truth, str) and maths().verdict("grade", _first(response), truth.strip())


def _r1v(response: str, truth: str) -> bool:
    return maths().verdict("r1v_equal", response, truth) or _first(response) == _first(truth)


SCORER = Scorer(
    score,
    data_sources=("leonardPKU/clevr*", "BUAADreamer/clevr*", "r1v*", "R1-V*"),
    summary="the last `<answer>`, compared by value, then by math-verify, with a term for the two pairs of tags",
    matches=("easyr1", "vppo", "r1v"),
    needs=("math",),
)
