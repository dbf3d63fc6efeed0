r"""Compare two final answers: by text, exact value, item by item, and last by mathematics.

Numbers are compared exactly, without floats: `0.333` is not 1/3, and two integers of thirty digits differ in their last
one. A decimal truth is a rounded one: `2\pi` is what `6.2832` stands for. Sets and lists have no order, tuples and
intervals have. What is left is compared by math-verify in a process of its own (process.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from whet.rewards.answers.numbers import values_of
from whet.rewards.answers.tidy import tidy, without_name
from whet.rewards.answers.units import split_unit

LONGEST = 1000  # characters of an answer that is compared as mathematics; longer ones only as text
DEEPEST = 4  # levels of lists in lists
MOST_ITEMS = 50  # of a list

Symbolic = Callable[[str, str], bool]

_OPENERS = {"(": ")", "[": "]"}
_CHOICE = re.compile(r"\(?([A-Za-z])\)?[.:)]?")
_CHOICE_WITH_TEXT = re.compile(r"\(?([A-Z])[).:]\s+\S")
_BASE = re.compile(r"[0-9A-Za-z]+_\{?\d+\}?")
_MATHS = re.compile(r"[\d\\^=<>+*/]|\b[a-z]\b", re.IGNORECASE)


def same_answer(said: str | None, truth: str, symbolic: Symbolic | None = None) -> bool:
    """True if an answer means what the true one means; `symbolic` compares what neither text nor value decides."""
    if said is None or not said.strip() or not truth.strip():
        return False
    if len(said) > LONGEST or len(truth) > LONGEST:
        return said.strip() == truth.strip()
    return _same(tidy(said), tidy(truth), symbolic or _maths, DEEPEST)


def same_as_any(said: str | None, truths: Sequence[str], symbolic: Symbolic | None = None) -> bool:
    """True if an answer means what one of the true ones means."""
    return any(same_answer(said, truth, symbolic) for truth in truths)


def _same(said: str, truth: str, symbolic: Symbolic, depth: int) -> bool:
    if _folded(said) == _folded(truth):
        return bool(_folded(said))
    said, truth = without_name(said), without_name(truth)
    if not said or not truth:
        return False
    if _folded(said) == _folded(truth) or _same_choice(said, truth):
        return True
    if _BASE.fullmatch(said) and _BASE.fullmatch(truth):
        return False  # the same number in the same base has the same text
    ours, theirs = _value(said, truth)
    if ours and theirs:
        return bool(ours & theirs)
    if depth and (verdict := _same_items(said, truth, symbolic, depth)) is not None:
        return verdict
    if not _MATHS.search(said) or not _MATHS.search(truth):
        return False  # words
    (said, unit), (truth, other) = split_unit(said), split_unit(truth)
    return not (unit and other and unit != other) and symbolic(truth, said)


def _value(said: str, truth: str) -> tuple[set, set]:
    """Values of both, units removed where they do not contradict each other."""
    ours, theirs = values_of(said), values_of(truth)
    if ours and theirs:
        return ours, theirs
    (said, unit), (truth, other) = split_unit(said), split_unit(truth)
    ours, theirs = values_of(said), values_of(truth)
    return ours, (set() if unit and other and unit != other else theirs)


def _same_items(said: str, truth: str, symbolic: Symbolic, depth: int) -> bool | None:
    """Compare sets, lists, tuples and intervals item by item; None where that does not apply."""
    kind, ours = _items(said)
    other, theirs = _items(truth)
    if len(theirs) < 2 and len(ours) < 2 and not (kind == other == "set"):
        return None
    if not {kind, other} <= {"set", "list"} and kind != other:
        return None if "list" in (kind, other) or "" in (kind, other) else False
    if len(ours) != len(theirs) or len(ours) > MOST_ITEMS:
        return False if kind == other else None
    if kind not in ("set", "list"):
        return all(_same(a, b, symbolic, depth - 1) for a, b in zip(ours, theirs))
    left = list(theirs)
    for item in ours:
        match = next((i for i, each in enumerate(left) if _same(item, each, symbolic, depth - 1)), None)
        if match is None:
            return False
        del left[match]
    return True


def _items(text: str) -> tuple[str, list[str]]:
    """The kind of a collection ("set", "list", or its brackets) and its items; "" and the text for a single answer."""
    kind, inner = "list", text
    if text.startswith("\\lbrace") and text.endswith("\\rbrace"):
        kind, inner = "set", text[len("\\lbrace") : -len("\\rbrace")].strip()
    elif text[:1] in _OPENERS and text[-1:] in ")]" and _closes_at_end(text):
        kind, inner = text[0] + text[-1], text[1:-1]
    inner = re.sub(r",?\s+(?:and|or)\s+", ", ", inner)
    parts, start, level = [], 0, 0
    for at, char in enumerate(inner):
        level += (char in "([{") - (char in ")]}")
        if level == 0 and char in ",;" and not _is_thousands(inner, at):
            parts.append(inner[start:at])
            start = at + 1
    parts = [part.strip() for part in (*parts, inner[start:])]
    if len(parts) < 2 and kind != "set":
        return "", [text]
    return kind, [part for part in parts if part]


def _closes_at_end(text: str) -> bool:
    """True if the bracket at the beginning is closed by the last character; an interval may close with the other."""
    level = 0
    for at, char in enumerate(text):
        level += (char in "([") - (char in ")]")
        if level == 0:
            return at == len(text) - 1
    return False


def _is_thousands(text: str, at: int) -> bool:
    """True for the comma of 1,000 or 12,345.6: three digits behind it and one to three before, no space between."""
    before, behind = text[max(0, at - 4) : at], text[at + 1 : at + 5]
    return bool(
        re.search(r"(?:\A|[^\d.])\d{1,3}\Z|,\d{3}\Z", before if at > 3 else " " + before)
        and re.match(r"\d{3}(?!\d)", behind)
    )


def _same_choice(said: str, truth: str) -> bool:
    """A letter of multiple choice: `B`, `(B)` and `B.` are one, and `B. 12` begins with it."""
    true = _CHOICE.fullmatch(truth)
    ours = _CHOICE.fullmatch(said) or _CHOICE_WITH_TEXT.match(said)
    return bool(true and ours and true[1].upper() == ours[1].upper())


def _folded(text: str) -> str:
    return re.sub(r"\s+", "", text).casefold()


def _maths(truth: str, said: str) -> bool:
    from whet.rewards.answers.process import maths

    return maths().verdict("equal", truth, said)
