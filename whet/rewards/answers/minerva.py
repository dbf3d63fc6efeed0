r"""The text form of Minerva's evaluation, by which DAPO's reward compares answers.

Only for `match`: unit words are deleted inside other words too, and nothing is compared as mathematics.
"""

from __future__ import annotations

import re

_REWRITTEN = (
    ("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), ("\\ ", ""), (" ", ""), ("mbox", "text"),
    (",\\text{and}", ","), ("\\text{and}", ","), ("\\text{m}", "\\text{}"),
)  # fmt: skip
_REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots", "sue", "points",
    "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students",
    "childrentickets", "multiples", "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}",
    "\\text{}", "\\mathrm{th}", "^\\circ", "^{\\circ}", "\\;", ",\\!", "{,}", '"', "\\dots",
)  # fmt: skip
_UNWRAPPED = (
    re.compile(r"\\text\{(.*?)\}"),
    re.compile(r"\\textbf\{(.*?)\}"),
    re.compile(r"\\overline\{(.*?)\}"),
    re.compile(r"\\boxed\{(.*)\}"),
)


def minerva_form(text: str) -> str:
    """The form in which equal answers have equal texts."""
    text = text.rpartition("=")[2]
    for old, new in _REWRITTEN:
        text = text.replace(old, new)
    for removed in _REMOVED:
        text = text.replace(removed, "")
    text = _in_first_dollars(text)
    for wrapper in _UNWRAPPED:
        text = wrapper.sub(r"\1", text)
    text = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", text)
    text = re.sub(r"sqrt([^{])", r"sqrt{\1}", text)
    text = text.replace("$", "")
    bare = text.replace(",", "")
    return (bare if bare.isdigit() else text).strip()


def _in_first_dollars(text: str) -> str:
    """Each line of which two dollar signs enclose something becomes what the first two enclose."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        parts = line.split("$", 2)
        if len(parts) == 3:
            lines[at] = f"${parts[1]}$"
    return "\n".join(lines)
