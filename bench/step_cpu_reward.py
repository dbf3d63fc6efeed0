"""The reward that both sides of bench/step_cpu.py use: the share of characters that are digits."""


def digit_share(text: str) -> float:
    return sum(c.isdigit() for c in text) / max(len(text), 1)


def compute_score(reward_inputs: list[dict]) -> list[dict]:
    """EasyR1's batch form."""
    return [{"overall": digit_share(row["response"])} for row in reward_inputs]
