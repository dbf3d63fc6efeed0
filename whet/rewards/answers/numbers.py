r"""Exact values of numbers as people write them: `1,000`, `-.5`, `3/4`, `1\frac{1}{2}`, `1.5\times 10^{3}`, `50\%`."""

from __future__ import annotations

import re
from fractions import Fraction

MOST_DIGITS = 400  # of a number; also the largest exponent of ten

_PLAIN = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)"
_INTEGER = r"\d+"
_DECIMAL = re.compile(rf"({_PLAIN})(?:e([-+]?{_INTEGER}))?", re.IGNORECASE)
_SCIENTIFIC = re.compile(rf"({_PLAIN})\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*(?:\{{\s*([-+]?\d+)\s*\}}|([-+]?\d+))")
_POWER_OF_TEN = re.compile(r"10\s*\^\s*(?:\{\s*([-+]?\d+)\s*\}|([-+]?\d+))")
_SLASH = re.compile(rf"\(?({_PLAIN})\)?\s*/\s*\(?([-+]?{_PLAIN})\)?")
_FRAC = re.compile(rf"\\frac\s*\{{\s*([-+]?)\s*({_PLAIN})\s*\}}\s*\{{\s*([-+]?)\s*({_PLAIN})\s*\}}")
_MIXED_FRAC = re.compile(rf"(\d+)\s*\\frac\s*\{{\s*({_INTEGER})\s*\}}\s*\{{\s*({_INTEGER})\s*\}}")
_MIXED_SLASH = re.compile(r"(\d+)\s+(?:and\s+)?(\d+)\s*/\s*(\d+)")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{\s*(\d+)\s*\}")
_SPACED = re.compile(r"\d{1,3}(?: \d{3})+(?:\.\d+)?")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALED = re.compile(rf"({_PLAIN})\s*({'|'.join(_SCALES)})", re.IGNORECASE)
_PERCENT = re.compile(r"\s*(?:\\?%|percent|per cent)\s*\Z", re.IGNORECASE)


def value_of(text: str) -> Fraction | None:
    """The exact value, or None for text that is no single number; a percent sign is not part of a number."""
    text = text.strip()
    if not text or len(text) > 2 * MOST_DIGITS:
        return None
    sign = 1
    while text[:1] in ("-", "+"):
        sign, text = (-sign if text[0] == "-" else sign), text[1:].lstrip()
    if text[:1] == "(" and text[-1:] == ")" and "(" not in text[1:]:
        inner = value_of(text[1:-1])
        return None if inner is None else sign * inner
    value = _unsigned(text)
    return None if value is None else sign * value


def values_of(text: str) -> set[Fraction]:
    """Values that a number can mean: 50% is 50 as well as 1/2."""
    bare = _PERCENT.sub("", text)
    value = value_of(bare)
    if value is None:
        return set()
    return {value} if bare == text else {value, value / 100}


def decimals_of(text: str) -> int | None:
    """Digits after the decimal point of a decimal number, or None for other text."""
    found = re.fullmatch(r"[-+]?[\d,]*\.(\d+)", text.strip())
    return len(found[1]) if found else None


def _unsigned(text: str) -> Fraction | None:
    if found := _DECIMAL.fullmatch(text):
        return _scaled(found[1], int(found[2] or 0))
    if found := _REPEATING.fullmatch(text):
        head, tail, period = found.groups()
        nines = 10 ** len(tail) * (10 ** len(period) - 1)
        return Fraction(f"{head or 0}.{tail or 0}") + Fraction(int(period), nines)
    if _SPACED.fullmatch(text):
        return _scaled(text.replace(" ", ""), 0)
    if found := _SCIENTIFIC.fullmatch(text):
        return _scaled(found[1], int(found[2] or found[3]))
    if found := _POWER_OF_TEN.fullmatch(text):
        return _scaled("1", int(found[1] or found[2]))
    if found := _SCALED.fullmatch(text):
        return _scaled(found[1], _SCALES[found[2].lower()])
    if found := _SLASH.fullmatch(text):
        return _ratio(found[1], found[2])
    if found := _FRAC.fullmatch(text):
        return _ratio(found[1] + found[2], found[3] + found[4])
    if found := _MIXED_FRAC.fullmatch(text) or _MIXED_SLASH.fullmatch(text):
        part = _ratio(found[2], found[3])
        return None if part is None else Fraction(found[1]) + part
    return None


def _scaled(digits: str, exponent: int) -> Fraction | None:
    if abs(exponent) > MOST_DIGITS:
        return None
    return _plain(digits) * Fraction(10) ** exponent


def _ratio(above: str, below: str) -> Fraction | None:
    divisor = _plain(below)
    return _plain(above) / divisor if divisor else None


def _plain(digits: str) -> Fraction:
    text = digits.replace(",", "")
    return Fraction(text if text[-1:] != "." else text[:-1])
