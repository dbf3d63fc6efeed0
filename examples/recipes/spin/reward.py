"""Measure how close a response is to the demonstration; SPIN learns from demonstrations and not from this number."""

from collections import Counter


def compute_score(response: str, answer: str) -> dict:
    """Return the F1 of the words that response and demonstration have in common."""
    said, shown = response.lower().split(), str(answer).lower().split()
    both = (Counter(said) & Counter(shown)).total()
    return {"overall": 2 * both / max(len(said) + len(shown), 1)}
