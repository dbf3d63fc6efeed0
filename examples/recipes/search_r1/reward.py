"""Score the last turn of an episode: the number that was asked for, and nothing else."""


def compute_score(response: str, answer: str, turns: list[dict]) -> dict:
    """Return 1 for the right number."""
    last = turns[-1]
    right = float(last["by_model"] and last["text"].strip() == answer)
    return {"overall": right, "accuracy": right, "searched": float(len(turns) > 1)}
