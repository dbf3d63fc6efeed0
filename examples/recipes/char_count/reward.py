"""Score a count: the number behind the last "=" is all that is asked for."""

import re

ANSWER = re.compile(r"= (\d+)$")


def compute_score(response: str, answer: str) -> dict:
    """Return 1 for the right count; an answer without a number has no form either."""
    found = ANSWER.search(response.strip())
    right = float(found is not None and found[1] == answer)
    return {"overall": right, "accuracy": right, "format": float(found is not None)}
