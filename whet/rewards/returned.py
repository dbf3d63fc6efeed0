"""What a reward function returned, made into scores in the worker: nothing but numbers and short texts travels back."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from math import isfinite
from typing import Any

from whet.rewards.result import LARGEST, Scores, check_scores

_SHOWN = 2000  # characters
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200
_short.maxdict = 12


class BadResultError(Exception):
    """The function returned something that is no score; the message shows it."""


def read_batch(value: Any, size: int) -> list[Any]:
    """The results of a batch call, one for each sample."""
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        raise BadResultError(f"a batch function returns a list with one result per sample; it returned {show(value)}")
    if len(value) != size:
        raise BadResultError(f"{size} samples went in and {len(value)} results came back; it returned {show(value)}")
    return [value[i] for i in range(size)]


def read_scores(value: Any, verl: bool = False) -> Scores:
    """The numbers in one result. A bare number is `overall`; verl's `score` is `overall`, its `acc` is `accuracy`."""
    if not isinstance(value, Mapping):
        return {"overall": _overall(value, value)}
    named = dict(value)
    if verl:
        if "score" in named:
            named["overall"] = named.pop("score")
        if "acc" in named:
            named.setdefault("accuracy", named["acc"])
    if "overall" not in named:
        missing = "`score`" if verl else "`overall`"
        raise BadResultError(f"the result needs a number called {missing}; it returned {show(value)}")
    scores = {"overall": _overall(named["overall"], value)}
    for name, entry in named.items():
        number = as_number(entry)
        if isinstance(name, str) and name != "overall" and number is not None and abs(number) <= LARGEST:
            scores[str.__str__(name)] = number
    problem = check_scores(scores)
    if problem:
        raise BadResultError(f"{problem}; it returned {show(value)}")
    return scores


def as_number(value: Any) -> float | None:
    """The value as a float (bool, int, float, arrays and tensors of one number), or None when it is no number."""
    if not hasattr(type(value), "__float__"):
        return None
    try:
        return float(value.item() if getattr(value, "size", 0) == 1 else value)
    except OverflowError:  # an int of 400 digits
        return math.inf
    except (TypeError, ValueError, RuntimeError):
        return None


def show(value: Any) -> str:
    """A short text of any object, whatever its own repr does."""
    try:
        return _short.repr(value)[:_SHOWN]
    except BaseException as error:
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


def _overall(value: Any, result: Any) -> float:
    number = as_number(value)
    if number is None:
        kind = type(value).__name__
        raise BadResultError(f"the score must be a number, not {kind}; it returned {show(result)}")
    if not isfinite(number) or abs(number) > LARGEST:
        raise BadResultError(f"the score must be finite and within ±{LARGEST:g}; it returned {show(result)}")
    return number
