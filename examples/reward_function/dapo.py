"""DAPO's reward (Yu et al., 2025): +1 or -1 for the last line `Answer: ...`, and a soft penalty for running long.

With `max_response_length` and `overlong_buffer_length` in `worker.reward.reward_function_kwargs` a response loses up to
`overlong_penalty_factor` over the last `overlong_buffer_length` tokens of the limit. `accuracy_normalized`, 0 or 1, is
the score to filter groups by.
"""

import re

from answers import last_boxed, same_answer

ANSWER = re.compile(r"Answer\s*:\s*([^\n]+)", re.IGNORECASE)
LOOKED_AT = 300  # characters at the end of a response


def compute_score(
    reward_inputs: list[dict],
    max_response_length: int | None = None,
    overlong_buffer_length: int = 0,
    overlong_penalty_factor: float = 1.0,
) -> list[dict]:
    """Scores of every response."""
    if overlong_buffer_length and not max_response_length:
        raise ValueError("overlong_buffer_length needs max_response_length beside it")
    scores = []
    for each in reward_inputs:
        accuracy = 1.0 if is_right(each["response"], str(each["ground_truth"])) else -1.0
        overlong = 0.0
        if max_response_length and overlong_buffer_length:
            overlong = overlong_penalty(each["response_length"], max_response_length, overlong_buffer_length)
        scores.append(
            {
                "overall": accuracy + overlong_penalty_factor * overlong,
                "accuracy": accuracy,
                "overlong": overlong,
                "accuracy_normalized": (accuracy + 1) / 2,
            }
        )
    return scores


def is_right(response: str, truth: str) -> bool:
    """Whether the last `Answer:` of the response's end is the true one."""
    found = ANSWER.findall(response[-LOOKED_AT:])
    return bool(found) and same_answer(last_boxed(found[-1]) or found[-1], truth)


def overlong_penalty(length: int, limit: int, buffer: int) -> float:
    """0 up to `limit - buffer` tokens, then a straight line to -1 at the limit."""
    return -min(max(length - (limit - buffer), 0) / buffer, 1.0)
