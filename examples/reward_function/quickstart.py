"""Score the quickstart's replies: are the digits in order, and does the reply have the form that was asked for?

A reward function is plain Python. This one takes all samples of a step at once; each is a dict with the model's
`response`, the row's `ground_truth`, and every other column of the row by its own name.
"""

import re

FORM = re.compile(r"Answer:((?: \d)+)")


def compute_score(reward_inputs: list[dict], format_weight: float = 0.1) -> list[dict]:
    """One dict of scores per sample: `overall` is what the model learns from, the others are for people to watch."""
    return [score(each["response"], each["ground_truth"], format_weight) for each in reward_inputs]


def score(response: str, truth: str, format_weight: float) -> dict:
    """The right form earns a little; the right digits in the right form earn everything."""
    found = FORM.fullmatch(response.strip())
    form = float(found is not None)
    accuracy = float(found is not None and found[1].strip() == truth)
    return {"overall": (1 - format_weight) * accuracy + format_weight * form, "accuracy": accuracy, "format": form}
