"""Geometry problems (geometry3k): the answer in \\boxed{} is a number, perhaps rounded, perhaps with a root.

An answer counts when it means the true one, or when it agrees with it to the digits that the true one has: 12.7 is
right where the truth is `9 \\sqrt { 2 }` only with `tolerance: 0.005` in `worker.reward.reward_function_kwargs`.
"""

import re

from answers import evaluate, last_boxed, same_answer, tidy

FORM = re.compile(r"<think>.*</think>.*\\boxed\{.*\}.*", re.DOTALL)


def compute_score(reward_inputs: list[dict], format_weight: float = 0.1, tolerance: float = 0.0) -> list[dict]:
    """Accuracy and form of every response, and their weighted sum."""
    return [score(each["response"], str(each["ground_truth"]), format_weight, tolerance) for each in reward_inputs]


def score(response: str, truth: str, format_weight: float, tolerance: float) -> dict:
    """Scores of one response."""
    said = last_boxed(response)
    accuracy = float(same_answer(said, truth) or _close(said, truth, tolerance))
    form = float(FORM.fullmatch(response.strip()) is not None)
    return {"overall": (1 - format_weight) * accuracy + format_weight * form, "format": form, "accuracy": accuracy}


def _close(said: str | None, truth: str, tolerance: float) -> bool:
    """Whether two numbers agree to the decimals of the true one, or to a share `tolerance` of it."""
    if said is None:
        return False
    ours, theirs = evaluate(tidy(said)), evaluate(tidy(truth))
    if ours is None or theirs is None:
        return False
    decimals = re.fullmatch(r"-?\d*\.(\d+)", tidy(truth))
    rounding = 0.5 * 10 ** -len(decimals[1]) if decimals else 0.0
    return abs(ours - theirs) <= max(rounding, tolerance * abs(theirs)) * (1 + 1e-9)
