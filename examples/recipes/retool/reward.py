"""Score the last turn of an episode; what the interpreter printed is not the policy's and earns nothing."""


def compute_score(response: str, answer: str, turns: list[dict]) -> dict:
    """Return 1 for the right number."""
    last = turns[-1]
    right = float(last["by_model"] and last["text"].strip() == answer)
    return {"overall": right, "accuracy": right, "ran_code": float(len(turns) > 1)}
