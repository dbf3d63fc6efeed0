"""A term for the length of a response alone, to combine with others: DAPO's soft penalty, or a target.

`max_response_length` and `overlong_buffer_length` give 0 up to the buffer, then a line to −1 at the limit (DAPO).
`target_length` gives −min(1, |tokens − target| / target).
"""

from __future__ import annotations

from typing import Any

from whet.errors import UserError
from whet.rewards.answers.length import overlong
from whet.rewards.registry import Score, Scorer, check_match


def score(
    response: str,
    ground_truth: Any = None,
    *,
    match: str = "whet",
    response_length: int = 0,
    max_response_length: int | None = None,
    overlong_buffer_length: int | None = None,
    target_length: int | None = None,
) -> Score:
    """A penalty between −1 and 0."""
    check_match(match, "length", SCORER.matches)
    if target_length is not None:
        if target_length < 1:
            raise UserError(f"target_length={target_length}: must be at least 1 token")
        return {"overall": -min(1.0, abs(response_length - target_length) / target_length)}
    if max_response_length is None or overlong_buffer_length is None:
        raise UserError("the scorer length needs target_length, or max_response_length and overlong_buffer_length")
    if not 0 < overlong_buffer_length <= max_response_length:
        raise UserError(
            f"overlong_buffer_length={overlong_buffer_length}: must lie between 1 and max_response_length="
            f"{max_response_length}"
        )
    term = overlong(response_length, max_response_length, overlong_buffer_length)
    return {"overall": term, "overlong": term}


SCORER = Scorer(
    score,
    data_sources=(),
    summary="−1 to 0 for the tokens of the response: DAPO's soft penalty, or the distance to `target_length`",
)
