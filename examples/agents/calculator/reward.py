"""Score answers that were found with a calculator: the policy's last turn is the number, and nothing else."""


def compute_score(response: str, answer: str, turns: list[dict]) -> dict:
    """Return 1 for the right number. What the calculator wrote is not the policy's, and earns nothing."""
    last = turns[-1]
    right = float(last["by_model"] and last["text"].strip() == answer)
    return {"overall": right, "accuracy": right, "called": float(len(turns) > 1)}
