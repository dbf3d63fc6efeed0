"""Divisors of batch sizes and device counts, for advice in errors."""

from __future__ import annotations

import math

MOST_TRIED = 100_000  # divisors up to this and their counterparts are found, which takes milliseconds
MOST_SHOWN = 20


def divisors(whole: int) -> list[int]:
    """The divisors of a number in order; of one above 10^10, those that are small or large."""
    small = [size for size in range(1, min(math.isqrt(whole), MOST_TRIED) + 1) if whole % size == 0]
    return sorted({*small, *(whole // size for size in small)})


def listed(numbers: list[int]) -> str:
    """Numbers as part of a sentence, without most of a long list."""
    if len(numbers) <= MOST_SHOWN:
        return ", ".join(map(str, numbers))
    return f"{', '.join(map(str, numbers[: MOST_SHOWN - 1]))}, ..., {numbers[-1]}"
