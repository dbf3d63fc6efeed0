"""Units behind a number: `10 cm`, `15 degrees`, `42 apples`; two different units are two different answers."""

from __future__ import annotations

import re

_ALIASES = {
    "cm": "cm", "centimeter": "cm", "centimetre": "cm", "m": "m", "meter": "m", "metre": "m", "km": "km",
    "kilometer": "km", "kilometre": "km", "mm": "mm", "millimeter": "mm", "millimetre": "mm", "inch": "inch",
    "inche": "inch", "in": "inch", "foot": "foot", "feet": "foot", "ft": "foot", "yard": "yard", "yd": "yard",
    "mile": "mile", "second": "second", "sec": "second", "s": "second", "minute": "minute", "min": "minute",
    "hour": "hour", "hr": "hour", "h": "hour", "day": "day", "week": "week", "month": "month", "year": "year",
    "g": "g", "gram": "g", "kg": "kg", "kilogram": "kg", "pound": "pound", "lb": "pound", "ounce": "ounce",
    "oz": "ounce", "l": "l", "liter": "l", "litre": "l", "ml": "ml", "gallon": "gallon", "mph": "mph", "km/h": "km/h",
    "dollar": "dollar", "usd": "dollar", "cent": "cent", "euro": "euro", "degree": "degree", "deg": "degree",
    "radian": "radian", "rad": "radian", "unit": "unit", "way": "way", "point": "point",
}  # fmt: skip
_SCALES = ("hundred", "thousand", "million", "billion", "trillion", "percent", "dozen")
_NUMBER_END = r"(?<=[\d})])\s*"
_UNIT = re.compile(
    rf"{_NUMBER_END}(?P<area>(?:square|cubic|sq\.?|cu\.?)\s+)?(?P<name>[A-Za-z]+(?:/[a-z]+)?)\.?\s*(?:\^\s*(?P<power>[23]))?\Z"
)
_WORDS = re.compile(rf"{_NUMBER_END}(?P<words>[A-Za-z]{{3,20}}(?: [A-Za-z]{{2,20}}){{0,3}})\Z")


def split_unit(text: str) -> tuple[str, str]:
    """The number and the unit, in one spelling each; no unit is an empty text."""
    if found := _UNIT.search(text):
        name = found["name"].lower()
        unit = _ALIASES.get(name) or _ALIASES.get(name.removesuffix("s")) or ""
        if (
            unit
            and (len(name) > 1 or found["power"] or found["name"] in ("m", "g", "L"))
            and _has_digit(text, found.start())
        ):
            power = found["power"] or {"s": "2", "c": "3", "": ""}[(found["area"] or "")[:1].lower()]
            return text[: found.start()].rstrip(), unit + power
    if (
        (found := _WORDS.search(text))
        and not found["words"].lower().startswith(_SCALES)
        and _has_digit(text, found.start())
    ):
        words = found["words"].lower().split()
        if not {"or", "and", "to", "mod", "if", "when", "where", "for"} & set(words):
            return text[: found.start()].rstrip(), " ".join(words)
    return text, ""


def _has_digit(text: str, end: int) -> bool:
    return any(char.isdigit() for char in text[:end])
