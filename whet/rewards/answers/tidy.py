r"""An answer without what does not change its meaning: spacing, `\text{}`, dollar signs, `x =`, a full stop."""

from __future__ import annotations

import re

from whet.rewards.answers.characters import latex_signs

_BRACKETS = {"Interval": "[]", "Interval.open": "()", "Interval.Lopen": "(]", "Interval.Ropen": "[)", "Point": "()"}
_SYMPY = re.compile(rf"({'|'.join(map(re.escape, _BRACKETS))})\(([^()]*)\)")
_ROW = "\x01"
_SPACING = re.compile(r"\\(?:displaystyle|textstyle|left(?![a-z])|right(?![a-z])|quad|qquad|limits)|\\[,;:> ]|~")
_DELIMITERS = re.compile(r"\\[()\[\]]|(?<!\\)\$")
_WRAPPERS = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mathsf|mbox|operatorname|boxed|fbox|bf|rm)\s*\{([^{}]*)\}"
)
_DEGREES = re.compile(r"(?:\^\s*\{?\s*\\circ\s*\}?|\\degree)(?:\s*[CF]\b)?")
_CURRENCIES = str.maketrans("", "", "£€¥")
_SINGLE = re.compile(r"([\^_])\{(\w)\}")
_BARE_FRAC = re.compile(r"\\frac\s*(\d|\{[^{}]*\})\s*(\d|[a-z]\b|\{[^{}]*\})")
_SQRT_WORD = re.compile(r"\\sqrt\s*(?:\(([^()]{1,100})\)|(\d+|[a-zA-Z])(?![\w.]))")
_SQRT_DIGIT = re.compile(r"\\sqrt\s*(\d|[a-zA-Z])")
_ASSIGNED = re.compile(
    r"\A\s*(?:[A-Za-z]{1,3}(?:_\{?\w{1,3}\}?)?|[A-Za-z]\(\w\)|\\[a-z]+)\s*(?:=|\\approx|\\in\b)\s*(?=\S)"
)
_LEAD = re.compile(r"\A(?:[^=<>]{0,60}?\b)?(?:answer|result|value|total)s?\s+(?:is|are|equals?)\s*:?\s*", re.IGNORECASE)
_SHORT_LEAD = re.compile(
    r"\A(?:an?|the|it is|it's|equals?|is equal to|approximately|about|is)\s+(?=[-+\\$(\[{]?\d|\\)", re.IGNORECASE
)
_BETWEEN_DIGITS = re.compile(r"(?<=\d)(?:\{,\}|,\s?\\!|\\!|\\,)\s*(?=\d{3})")


def tidy(text: str) -> str:
    """The answer in one spelling of LaTeX."""
    text = latex_signs(text).translate(_CURRENCIES).replace("\n", " ").replace("\r", " ").strip()
    text = text.replace("\\\\", _ROW)  # the end of a matrix row is no backslash of what follows
    text = _BETWEEN_DIGITS.sub(",", text).replace("\\!", "")
    text = text.replace("\\$", "").replace("\\%", "%").replace("\\{", "\\lbrace ").replace("\\}", "\\rbrace ")
    text = _SPACING.sub(" ", text)
    text = re.sub(r"\\[dtc]frac\b|\\[dtc]frac(?=\d)", r"\\frac", text)
    text = _DELIMITERS.sub("", text).replace("**", "").replace("\\leq", "\\le").replace("\\geq", "\\ge")
    for _ in range(3):  # wrappers in wrappers
        text, count = _WRAPPERS.subn(r" \1 ", text)
        if not count:
            break
    text = _DEGREES.sub("", text)
    text = _SQRT_WORD.sub(lambda found: f"\\sqrt{{{found[1] or found[2]}}}", text)
    text = _SQRT_DIGIT.sub(r"\\sqrt{\1}", text)
    text = _BARE_FRAC.sub(lambda found: f"\\frac{{{_inner(found[1])}}}{{{_inner(found[2])}}}", text)
    text = _spelled_out(text)
    text = _SINGLE.sub(r"\1\2", text).replace(_ROW, " \\\\ ")
    return _trimmed(re.sub(r"\s+", " ", text))


def _spelled_out(text: str) -> str:
    """Intervals and points in brackets, where they are written as sympy prints them."""
    found = _SYMPY.fullmatch(text.strip())
    return f"{_BRACKETS[found[1]][0]}{found[2]}{_BRACKETS[found[1]][1]}" if found else text


def without_name(text: str) -> str:
    """The answer without a leading `x =` or "the answer is"; of a chain such as `3+5=8`, its end."""
    text = _SHORT_LEAD.sub("", _LEAD.sub("", text))
    text = _trimmed(_ASSIGNED.sub("", text))
    head, equals, tail = text.rpartition("=")
    if equals and tail.strip() and "<" not in text and ">" not in text and not re.search(r"[A-Za-z]", head):
        text = _trimmed(tail)
    return text


def _inner(group: str) -> str:
    return group[1:-1] if group[0] == "{" else group


def _trimmed(text: str) -> str:
    text = text.strip().strip("*_").strip()
    while text[-1:] in (".", ",", ";", ":") or text.endswith("\\"):
        text = text[:-1].rstrip()
    if text[:1] == '"' and text[-1:] == '"':
        text = text[1:-1].strip()
    while text[:1] == "{" and text[-1:] == "}" and "{" not in text[1:] and "}" not in text[:-1]:
        text = text[1:-1].strip()
    return text
