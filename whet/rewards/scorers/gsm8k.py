"""Grade-school word problems (GSM8K): one number, behind four hashes.

`match=verl` is verl's function: the last 300 characters, texts compared letter by letter.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from whet.errors import UserError
from whet.rewards.answers.characters import ascii_digits
from whet.rewards.answers.extract import boxed_answer
from whet.rewards.answers.numbers import values_of
from whet.rewards.answers.truths import accepted
from whet.rewards.registry import Score, Scorer, check_match

METHODS = ("strict", "flexible")
MOST_MARKERS = 20  # looked at, from the end, for one with a number behind it
LINE = 200  # characters behind a marker that may hold the number
_NUMBER = re.compile(
    r"(?:(?<![\d.])[-+]\s?)?\$?\s?(?:(?<![\d.])[-+]\s?)?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?=\.\d))(?:\.\d+)?(?:[eE][-+]?\d{1,3}\b)?(?:/\d+)?"
)
_VERL_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_VERL_FLEXIBLE = re.compile(r"-?[0-9.,]+")


def score(
    response: str,
    ground_truth: Any,
    *,
    match: str = "whet",
    method: str = "strict",
    format_score: float = 0.0,
    score: float = 1.0,
) -> Score:
    """`score` for the right number, `format_score` for another one behind the marker, else 0."""
    check_match(match, "gsm8k", SCORER.matches)
    if method not in METHODS:
        raise UserError(f"method={method}: gsm8k knows {' and '.join(METHODS)}")
    if match == "verl":
        found = _as_verl(response[-300:], method)
        right = found is not None and found == ground_truth
        return {"overall": (score if right else format_score) if found is not None else 0.0, "accuracy": float(right)}
    value = _number(_stated(response, method))
    right = value is not None and any(value in _truth(text) for text in accepted(ground_truth))
    form = value is not None
    return {"overall": score if right else format_score * form, "accuracy": float(right), "format": float(form)}


def _as_verl(text: str, method: str) -> str | None:
    if method == "strict":
        found = _VERL_STRICT.findall(text)
        return found[-1].replace(",", "").replace("$", "") if found else None
    found = _VERL_FLEXIBLE.findall(text)
    if not found:
        return None
    return next((each for each in reversed(found) if each not in ("", ".")), found[0])


def _stated(response: str, method: str) -> str | None:
    """The text in which the answer stands: behind the last marker, else (flexible) a box or the whole response."""
    before = response
    for _ in range(MOST_MARKERS):
        before, marker, behind = before.rpartition("####")
        line = ascii_digits(behind[: 2 * LINE].lstrip()[:LINE].partition("\n")[0])
        if marker and _NUMBER.search(line):
            return line
    if method == "strict":
        return None
    text = ascii_digits(boxed_answer(response) or response[-10_000:])
    found = _NUMBER.findall(text)
    return found[-1] if found else None


def _number(text: str | None) -> Fraction | None:
    """The first number of the text, if nothing that is part of an answer comes before it."""
    if text is None:
        return None
    text = boxed_answer(text) or text
    found = _NUMBER.search(text)
    if not found or re.search(r"[A-Za-z0-9]{12}", text[: found.start()]):
        return None
    if re.match(r"\s*,\s*[-+]?\d", text[found.end() :]):
        return None  # a list
    values = values_of(re.sub(r"[$\s]", "", found[0]))
    return max(values, key=abs) if values else None


def _truth(text: str) -> set[Fraction]:
    """Values of a truth: a number, or a whole solution that ends with one behind the marker."""
    number = _number(ascii_digits(text.rpartition("####")[2].strip()))
    return set() if number is None else {number}


SCORER = Scorer(
    score,
    data_sources=("openai/gsm8k", "gsm8k"),
    summary="the number behind `####`, compared by value; `method=flexible` takes a box or the last number too",
    matches=("verl",),
)
