r"""The text form of Hendrycks' MATH release, by which verl's math_reward and the graders after PRM800K compare answers.

Only for `match`: it reads neither thousands separators nor decimals, and knows no mathematics.
"""

from __future__ import annotations

import re

_REWRITTEN = (
    ("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), ("\\left", ""), ("\\right", ""),
    ("^{\\circ}", ""), ("^\\circ", ""), ("\\$", ""),
)  # fmt: skip


class UnreadableError(Exception):
    """The original's code raises on this text."""


def hendrycks_form(text: str) -> str:
    """The form in which equal answers have equal texts; UnreadableError where the original fails."""
    for old, new in _REWRITTEN:
        text = text.replace(old, new)
    head, *rest = text.split("\\text{ ")
    if len(rest) > 1:
        raise UnreadableError("two units")
    text = head.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text.startswith("."):
        text = "0" + text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = _braced_fractions(_braced_roots(text).replace(" ", ""))
    if text == "0.5":
        return "\\frac{1}{2}"
    return _fraction_of_integers(text)


def mathd_form(text: str) -> str:
    r"""The same without an enclosing `\text{}`; the stripped text itself where the original fails."""
    text = text.strip()
    try:
        if enclosed := re.search(r"^\\text\{(.+?)\}$", text):
            text = enclosed[1].strip()
        return hendrycks_form(text)
    except (UnreadableError, IndexError):
        return text


def _braced_roots(text: str) -> str:
    head, *parts = text.split("\\sqrt")
    for part in parts:
        if not part:
            raise UnreadableError("a root of nothing")
        head += "\\sqrt" + (part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}")
    return head


def _braced_fractions(text: str) -> str:
    head, *parts = text.split("\\frac")
    for part in parts:
        if not part:
            raise UnreadableError("a fraction of nothing")
        if part[0] == "{":
            head += "\\frac" + part
        elif len(part) < 2:
            return text
        elif part[1] == "{":
            head += f"\\frac{{{part[0]}}}{part[1:]}"
        else:
            head += f"\\frac{{{part[0]}}}{{{part[1]}}}{part[2:]}"
    return head


def _fraction_of_integers(text: str) -> str:
    above, slash, below = text.partition("/")
    if not slash or "/" in below:
        return text
    try:
        a, b = int(above), int(below)
    except ValueError:
        return text
    return f"\\frac{{{a}}}{{{b}}}" if text == f"{a}/{b}" else text
