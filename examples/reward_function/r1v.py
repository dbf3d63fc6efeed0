"""Reasoning in <think> tags, then a short answer in <answer> tags: half of the reward is for the form."""

import re

from answers import last_boxed, same_answer

FORM = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
TRUTH = re.compile(r"<answer>(.*?)</answer>|(.*)", re.DOTALL)  # some data sets keep the tags in their answers


def compute_score(reward_input: dict, format_weight: float = 0.5) -> dict:
    """Accuracy and form of one response, and their weighted sum."""
    response = reward_input["response"].strip()
    truth = TRUTH.match(str(reward_input["ground_truth"]).strip())
    found = ANSWER.search(response)
    said = found[1].strip() if found else response
    accuracy = float(same_answer(last_boxed(said) or said, (truth[1] or truth[2]).strip()))
    form = float(FORM.fullmatch(response) is not None)
    return {"overall": (1 - format_weight) * accuracy + format_weight * form, "format": form, "accuracy": accuracy}
