"""Score answers about pictures: `Answer: 3`, or a sentence such as `The red shape is at the top left.`"""

import re

FORM = re.compile(r"Answer: (?P<answer>[a-z0-9 ]+)|The [a-z]+ shape is at the (?P<place>[a-z ]+)\.")


def compute_score(reward_inputs: list[dict], format_weight: float = 0.1) -> list[dict]:
    """The right form earns a little; the right answer in the right form earns everything."""
    return [score(each["response"], each["ground_truth"], format_weight) for each in reward_inputs]


def score(response: str, truth: str, format_weight: float) -> dict:
    """Scores of one response."""
    found = FORM.fullmatch(response.strip())
    form = float(found is not None)
    accuracy = float(found is not None and (found["answer"] or found["place"]) == truth)
    return {"overall": (1 - format_weight) * accuracy + format_weight * form, "accuracy": accuracy, "format": form}
