"""Mathematics with reasoning in <think> tags and the answer in \\boxed{}: `compute_score` pays for both.

`compute_score_wo_format` pays for the answer alone, for models that keep the form anyway.
"""

import re

from answers import last_boxed, same_answer

FORM = re.compile(r"<think>.*</think>.*\\boxed\{.*\}.*", re.DOTALL)


def compute_score(reward_inputs: list[dict], format_weight: float = 0.1) -> list[dict]:
    """Accuracy and form of every response, and their weighted sum."""
    return [score(each["response"], each["ground_truth"], format_weight) for each in reward_inputs]


def compute_score_wo_format(reward_inputs: list[dict]) -> list[dict]:
    """The same scores; only accuracy is paid for."""
    return compute_score(reward_inputs, format_weight=0.0)


def score(response: str, truth: str, format_weight: float) -> dict:
    """Scores of one response."""
    tags = re.sub(r"\s*([<>/])\s*", r"\1", response)  # models write < think > too
    form = float(FORM.fullmatch(tags) is not None)
    accuracy = float(same_answer(last_boxed(response), truth))
    return {"overall": (1 - format_weight) * accuracy + format_weight * form, "format": form, "accuracy": accuracy}
