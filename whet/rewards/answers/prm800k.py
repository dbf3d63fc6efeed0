r"""The grade of PRM800K, with its variations: mathruler (EasyR1, geo3k), deepscaler (OR1), prime_math (verl).

Only for `match`. Runs in the process for mathematics: sympy simplifies what a model wrote.
"""

from __future__ import annotations

import math
import re
import unicodedata

from whet.rewards.answers.hendrycks import mathd_form

_UNITS = (
    "degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week", "month", "year", "foot",
    "feet", "inch", "yard",
)  # fmt: skip
_SIGNS = (("√", "sqrt"), ("π", "pi"), ("∞", "inf"), ("∪", "U"), ("·", "*"), ("×", "*"))
_THOUSANDS = re.compile(r"(\d)(,)(\d\d\d)($|\D)")
_FRACTION = re.compile(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$")
_BRACKETS = "()[]"
_PYTHON = re.compile(r"""['"\\;@]|__|\.\s*[^\W\d]""")  # texts, private names, attributes: no mathematics has them


def grade(given: str, truth: str, variant: str = "mathruler") -> bool:
    """True if an answer is right by the grade of `variant`: mathruler, or prime, which keeps blanks and braces."""
    if mathd_form(truth) == mathd_form(given):
        return True
    ours, theirs = _form(given, variant), _form(truth, variant)
    if ours == theirs:
        return True
    if not ours:
        return False
    our_parts, their_parts = _parts(ours), _parts(theirs)
    if len(their_parts) > 1 and (theirs[0] != ours[0] or theirs[-1] != ours[-1]):
        return False
    if len(our_parts) != len(their_parts):
        return False
    return all(_same_part(a, b) for a, b in zip(our_parts, their_parts))


def _form(text: str, variant: str) -> str:
    if enclosed := re.search(r"^\\text\{(.+?)\}$", text):
        text = enclosed[1]
    text = text.replace("\\%", "%").replace("\\$", "$").replace("$", "").replace("%", "")
    text = text.replace(" or ", " , ").replace(" and ", " , ")
    for word, power in (("million", 6), ("billion", 9), ("trillion", 12)):
        text = text.replace(word, f"*10^{power}")
    for unit in [*_UNITS, "liter"] if variant == "prime" else _UNITS:
        text = re.sub(rf"{unit}(es)?(s)? *(\^[0-9]+)?", "", text)
    text = re.sub(r"\^ *\\circ", "", text)
    if text[:1] == "{" and text[-1:] == "}":
        text = text[1:-1]
    text = re.sub(r",\\! *", "", text)
    if (value := _float(text)) is not None and _is_whole(value):
        text = str(round(value))
    if "\\" in text:
        text = _as_plain_text(text)
    text = re.sub(r"- *", "-", text)
    text = re.sub(r"([0-9]) +([0-9])", r"\1+\2", text)
    if variant != "prime":
        text = text.replace(" ", "").replace("{", "").replace("}", "")
    text = text.lower()
    return str(int(float(text.replace(",", "")))) if _is_integer(text) else text


def _as_plain_text(text: str) -> str:
    from pylatexenc import latex2text

    source = text.replace("\\tfrac", "\\frac").replace("\\dfrac", "\\frac").replace("\\frac", " \\frac")
    try:
        plain = latex2text.LatexNodes2Text().latex_to_text(source)
    except Exception:  # the original keeps what it cannot read
        return text
    for sign, word in _SIGNS:
        plain = plain.replace(sign, word)
    return plain.strip()


def _same_part(ours: str, theirs: str) -> bool:
    if _FRACTION.search(ours) and _FRACTION.search(theirs):
        return ours == theirs
    if _is_integer(ours) != _is_integer(theirs):
        return False
    return _simplifies_to_zero(theirs, ours)


def _simplifies_to_zero(theirs: str, ours: str) -> bool:
    """True if sympy simplifies the difference to 0; it is not asked about more than two letters or large powers."""
    import sympy
    from sympy.parsing import sympy_parser

    text = f"({theirs})-({ours})"
    # sympy's parser evaluates Python, whose names are compared in this form: a Roman numeral is a letter in it.
    if _PYTHON.search(text) or unicodedata.normalize("NFKC", text) != text:
        return False
    letters = {char for char in text.replace("sqrt", "").replace("frac", "") if char.isalpha()}
    if len(letters) > 2 or "^{" in text or "^(" in text or re.search(r"\^[0-9]+\^|\^[0-9][0-9]+", text):
        return False
    rules = (*sympy_parser.standard_transformations, sympy_parser.implicit_multiplication_application)
    try:
        return bool(sympy.simplify(sympy_parser.parse_expr(text.replace("^", "**"), transformations=rules)) == 0)
    except Exception:  # whatever sympy raises on text that is no mathematics
        return False


def _parts(text: str) -> list[str]:
    text = _without_separators(text)
    if not text:
        return []
    inner = text[1:-1]
    if len(text) > 2 and text[0] in _BRACKETS and text[-1] in _BRACKETS and not any(c in inner for c in _BRACKETS):
        return [part.strip() for part in inner.split(",")]
    return [text]


def _without_separators(text: str) -> str:
    while (shorter := _THOUSANDS.sub(r"\1\3\4", text)) != text:
        text = shorter
    return text


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and abs(value - round(value)) <= 1e-7


def _is_integer(text: str) -> bool:
    value = _float(_without_separators(text))
    return value is not None and _is_whole(value)
