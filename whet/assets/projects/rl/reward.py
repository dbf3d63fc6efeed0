"""The reward: how good is a reply? Change this file to train something else."""


def compute_score(response: str, answer: str) -> dict:
    """Pay 0.1 for the form and 0.9 for the right digits; the model learns from `overall`."""
    form = response.strip().startswith("Answer: ")
    right = response.strip() == f"Answer: {answer}"
    return {"overall": 0.1 * form + 0.9 * right, "accuracy": float(right)}
