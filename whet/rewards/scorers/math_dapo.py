r"""DAPO's reward (AIME and DAPO-Math-17k): +1 for the right answer, −1 for another, behind `Answer:` or in a box.

With `max_response_length` and `overlong_buffer_length` a response loses up to `overlong_penalty_factor` over the last
tokens of the limit. `match=verl` is verl's function (texts in Minerva's form, the last 300 characters, a box of the
last 100 only where there is no `Answer:`), `match=easyr1` EasyR1's, which has no box.
"""

from __future__ import annotations

import re
from typing import Any

from whet.errors import UserError
from whet.rewards.answers.equal import same_as_any
from whet.rewards.answers.extract import after_thoughts, boxed_answer, final_answer
from whet.rewards.answers.length import overlong
from whet.rewards.answers.minerva import minerva_form
from whet.rewards.answers.truths import accepted
from whet.rewards.registry import Score, Scorer, check_match

NOTHING = "[INVALID]"  # what verl notes for a response without an answer
END = 20_000  # characters at the end of a response in which `Answer:` may stand
_ANSWER = re.compile(r"answer[ \t]{0,4}(?:\*\*|__)?[ \t]{0,4}:[ \t]*(?:\*\*|__)?\s*([^\n]+)", re.IGNORECASE)
_VERL_ANSWER = re.compile(r"(?i)Answer\s*:\s*([^\n]+)")


def score(
    response: str,
    ground_truth: Any,
    *,
    match: str = "whet",
    response_length: int = 0,
    max_response_length: int | None = None,
    overlong_buffer_length: int = 0,
    overlong_penalty_factor: float = 1.0,
    strict_box_verify: bool = False,
    pause_tokens_index: list[int] | None = None,
) -> Score:
    """±1 and the length term; `pred` is the answer that was found."""
    check_match(match, "math_dapo", SCORER.matches)
    if match == "verl":
        right, pred = _verl(response[-300:], ground_truth, strict_box_verify, pause_tokens_index)
    elif match == "easyr1":
        right, pred = _minerva(response[-300:], ground_truth)
    else:
        pred = boxed_answer(response) if strict_box_verify else _answer(response)
        right = same_as_any(pred, accepted(ground_truth))
    accuracy = 1.0 if right else -1.0
    result = {"overall": accuracy, "accuracy": float(right), "pred": pred}
    if max_response_length is not None and overlong_buffer_length:
        if overlong_buffer_length > max_response_length:
            raise UserError(
                f"overlong_buffer_length={overlong_buffer_length} exceeds max_response_length={max_response_length}"
            )
        term = overlong(response_length, max_response_length, overlong_buffer_length)
        result |= {"overall": accuracy + overlong_penalty_factor * term, "overlong": term}
    return result


def _answer(response: str) -> str | None:
    """Return the text after the last `Answer:`, or the box in it; else the final answer of the response."""
    text = after_thoughts(response)[-END:]
    found = list(_ANSWER.finditer(text))
    if found and not found[-1][1].isspace():
        line = found[-1][1]
        if line.count("{") > line.count("}") or text[found[-1].end() :].lstrip()[:1] == "{":  # a formula over two lines
            line = text[found[-1].start(1) :][:500]
        return boxed_answer(line) or line
    return final_answer(response)


def _minerva(text: str, truth: str) -> tuple[bool, str]:
    found = _VERL_ANSWER.findall(text)
    pred = minerva_form(found[-1] if found else NOTHING)
    return pred == minerva_form(truth), pred


def _verl(text: str, truth: str, strict: bool, pauses: list[int] | None) -> tuple[bool, str | None]:
    if pauses is not None and len(pauses) != 4:
        raise UserError(f"pause_tokens_index={pauses}: expected four positions")
    box = _box(text[pauses[-1] - 100 :] if pauses is not None else text[-100:])
    if strict:
        return box == truth, box
    right, pred = _minerva(text, truth)
    return (box == truth, box) if pred == NOTHING and box is not None else (right, pred)


def _box(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if text[at] == "}" and depth == 0:
            return text[start + len("\\boxed{") : at]
    return None


SCORER = Scorer(
    score,
    data_sources=("math_dapo", "math", "math_dapo_reasoning", "aime*", "AIME*"),
    summary="±1 for what follows `Answer:` (else a box), compared by value, then by math-verify; a length term",
    matches=("verl", "easyr1"),
    needs=("math",),
)
