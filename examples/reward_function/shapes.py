"""Score answers about pictures: `Answer: 3`, `The red shape is at the top left.`, or a number in free words."""

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


def compute_told(reward_inputs: list[dict]) -> list[dict]:
    """Pay for the right number, whatever the words around it, if it is the only one in the response."""
    right = [float(re.findall("[0-9]+", each["response"]) == [each["ground_truth"]]) for each in reward_inputs]
    return [{"overall": one, "accuracy": one} for one in right]
