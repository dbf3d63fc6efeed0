"""Compare what a program gave with what was expected, on plain data, outside the program's process."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

_LONGEST_NUMBER = 400  # characters
_DEEPEST = 100


def same_output(actual: str, expected: str) -> bool:
    """True if two texts have equal lines, apart from blanks at their ends and around the text, or equal numbers."""
    left, right = (text.strip().splitlines() for text in (actual, expected))
    return len(left) == len(right) and all(_same_line(*pair) for pair in zip(left, right))


def _same_line(actual: str, expected: str) -> bool:
    left, right = actual.strip(), expected.strip()
    if left == right:
        return True
    words = left.split(), right.split()
    return len(words[0]) == len(words[1]) and all(
        one == other or _same_number(one, other) for one, other in zip(*words)
    )


def _same_number(one: str, other: str) -> bool:
    if max(len(one), len(other)) > _LONGEST_NUMBER or not (one.isascii() and other.isascii()):
        return False
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return False


def same_value(actual: Any, expected: Any, depth: int = 0) -> bool:
    """True if two JSON values are equal; tuples count as lists, and 1, 1.0 and true as Python compares them."""
    if depth > _DEEPEST:
        return False
    if isinstance(expected, list | tuple):
        return (
            isinstance(actual, list)
            and len(actual) == len(expected)
            and all(same_value(*pair, depth + 1) for pair in zip(actual, expected))
        )
    if isinstance(expected, dict):
        wanted = {str(key): value for key, value in expected.items()}  # JSON has no other keys
        return (
            isinstance(actual, dict)
            and actual.keys() == wanted.keys()
            and all(same_value(actual[key], value, depth + 1) for key, value in wanted.items())
        )
    if isinstance(expected, str) or expected is None:
        return type(actual) is type(expected) and actual == expected
    return isinstance(actual, bool | int | float) and actual == expected
