"""Score the digits that the quickstart's model writes against truths as Skywork-OR1 writes them: `["1 4 7 9"]`."""

from whet.rewards.answers.truths import accepted


def compute_score(response: str, answer: object) -> dict[str, float]:
    """Score 1 for the digits of any accepted answer, in their order."""
    said = response.removeprefix("Answer:").split()
    right = float(any(said == each.split() for each in accepted(answer)))
    return {"overall": right, "accuracy": right}
