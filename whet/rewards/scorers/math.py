r"""Mathematics (MATH, AIME and their relatives): the last `\boxed{}`, compared by value and by math-verify.

`match=verl` is verl's math_reward, `match=math_verify` the library's own verdict on the whole response (also that of
verl's wrapper), `match=or1` Skywork-OR1's function for mathematics, `match=deepscaler` the one it keeps beside that.
"""

from __future__ import annotations

from typing import Any

from whet.rewards.answers.equal import same_as_any
from whet.rewards.answers.extract import final_answer
from whet.rewards.answers.hendrycks import UnreadableError, hendrycks_form
from whet.rewards.answers.process import maths
from whet.rewards.answers.truths import accepted
from whet.rewards.registry import Score, Scorer, check_match

_WORDS_OF_CODE = ("question_id", "import_prefix", "inputs", "assert_case")


def score(response: str, ground_truth: Any, *, match: str = "whet") -> Score:
    """1 for the right answer, 0 for another or none."""
    check_match(match, "math", SCORER.matches)
    if match == "whet":
        said = final_answer(response)
        right = same_as_any(said, accepted(ground_truth))
        return {"overall": float(right), "accuracy": float(right), "format": float("\\boxed" in response)}
    judge = {"verl": _verl, "math_verify": _math_verify, "or1": _or1, "deepscaler": _deepscaler}[match]
    right = judge(response, ground_truth)
    return {"overall": float(right), "accuracy": float(right)}


def _verl(response: str, truth: Any) -> bool:
    """math_reward: every error is a wrong answer."""
    try:
        said = _box_of_math_reward(response)
        if said is None or truth is None:
            return False
        try:
            return hendrycks_form(said) == hendrycks_form(truth)
        except (UnreadableError, IndexError, AttributeError):
            return said == truth
    except ValueError:
        return False


def _box_of_math_reward(text: str) -> str | None:
    if "\\boxed " in text:
        return text.rpartition("\\boxed ")[2].partition("$")[0]
    return _last_box(text)  # of an fbox, the original fails to remove the box


def _math_verify(response: str, truth: Any) -> bool:
    return maths().verdict("verified", str(truth), response)


def _or1(response: str, truth: Any) -> bool:
    """Skywork-OR1: the second piece that think tags divide; TypeError on a truth that is no text, list or mapping."""
    if not isinstance(truth, (str, list, dict)):
        raise TypeError(f"argument of type {type(truth).__name__!r} is not iterable")
    if isinstance(truth, str) and any(word in truth for word in _WORDS_OF_CODE):
        return False  # it takes the truth for tests of a program
    pieces = response.split("</think>")
    text = pieces[1] if len(pieces) > 1 else response
    joined = list(truth) if isinstance(truth, dict) else truth
    return maths().verdict("verified_any", [str(each) for each in joined], text, joined)


def _deepscaler(response: str, truth: Any) -> bool:
    """deepscaler: both think tags, the last box behind the second piece, the grade of PRM800K."""
    if "<think>" not in response or "</think>" not in response:
        return False
    said = _last_box(response.split("</think>")[1])
    if said is None:
        return False
    truths = truth if isinstance(truth, list) else [truth]
    texts = [_last_box(str(each)) if "\\boxed" in str(each) else str(each) for each in truths]
    return any(maths().verdict("grade", said, text) for text in texts if text)


def _last_box(text: str) -> str | None:
    start = text.rfind("\\boxed")
    if start < 0:
        return None
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if text[at] == "}" and depth == 0:
            box = text[start : at + 1]
            return box[len("\\boxed{") : -1] if box.startswith("\\boxed{") else None
    return None


SCORER = Scorer(
    score,
    data_sources=(
        "lighteval/MATH",
        "DigitalLearningGmbH/MATH-lighteval",
        "HuggingFaceH4/MATH-500",
        "train-math-*",
        "test-math-*",
        "opencompass/AIME*",
    ),
    summary="the last box (else what is stated as the answer), compared by value, then by math-verify",
    matches=("verl", "math_verify", "or1", "deepscaler"),
    needs=("math",),
)
