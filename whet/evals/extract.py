"""The final answer in a response, by one extractor or the first of several that finds one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

from whet.rewards.answers.extract import after_thoughts, boxes, tagged_answer
from whet.rewards.programs.extract import program_in

NUMBER = re.compile(r"[-+]?\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
MARKED = re.compile(r"####\s*([^\n]+)")
STATED = re.compile(r"(?:final answer|answer|option|choice)(?:\s+is)?\s*[:=]?\s*", re.IGNORECASE)
SAID = re.compile(r"answer(?:\s+is)?\s*[:=]?\s*([^\n]+)", re.IGNORECASE)
LETTER = re.compile(r"\(?\b([A-Z])\b\)?")
ALONE = re.compile(r"\s*[*_(\[]*([A-Za-z])[*_)\]]*\s*(?:[.:,)\n]|$)")
YES_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
SPACES = re.compile(r"\s+")
ARTICLES = re.compile(r"\b(a|an|the)\b")
LONGEST = 300  # characters; what is longer is no final answer


def boxed(text: str) -> str | None:
    """Return the content of the last \\boxed{...}, nested braces included."""
    found = boxes(text)
    return found[-1][2] if found else None


def answer(text: str) -> str | None:
    """Return the content of the last <answer> tags."""
    found = tagged_answer(text)
    return boxed(found) or found if found else None


def marked(text: str) -> str | None:
    """Return the text after the last `####` on its line."""
    found = MARKED.findall(text)
    return found[-1].strip() if found else None


def stated(text: str) -> str | None:
    """Return the text after the last "answer:" or "the answer is" on its line."""
    found = SAID.findall(after_thoughts(text))
    return found[-1].strip().strip("*").strip() or None if found else None


def number(text: str) -> str | None:
    """The last number, without commas and dollar signs."""
    found = NUMBER.findall(after_thoughts(text))
    return re.sub(r"[$,+]", "", found[-1]) if found else None


def letter(text: str) -> str | None:
    """The letter of a choice: alone, at the beginning, behind "answer", or the last capital that stands for itself."""
    inner = (boxed(text) or answer(text) or after_thoughts(text)).strip()
    if found := ALONE.match(inner):
        return found[1].upper()
    for stated in reversed(list(STATED.finditer(inner))):
        if found := ALONE.match(inner, stated.end()):
            return found[1].upper()
    letters = [each for each in LETTER.findall(inner) if each not in "AI"] or LETTER.findall(inner)
    return letters[-1] if letters else None


def yes_no(text: str) -> str | None:
    """yes or no: of a stated answer, else the first that is said."""
    inner = boxed(text) or answer(text) or after_thoughts(text)
    stated = [found for each in STATED.finditer(inner) if (found := YES_NO.match(inner, each.end()))]
    found = stated[-1] if stated else YES_NO.search(inner)
    return found[1].lower() if found else None


def whole(text: str) -> str | None:
    """The whole response behind its thoughts, where it is short."""
    inner = after_thoughts(text).strip()
    return inner if 0 < len(inner) <= LONGEST else None


def program(text: str) -> str | None:
    """The last block of Python, without the blanks around it."""
    found = program_in(text)
    return found.strip() if found is not None else None


EXTRACTORS: dict[str, Callable[[str], str | None]] = {
    "boxed": boxed,
    "answer": answer,
    "marked": marked,
    "stated": stated,
    "letter": letter,
    "yes_no": yes_no,
    "number": number,
    "text": whole,
    "program": program,
}


def extract(text: str, names: Sequence[str]) -> str | None:
    """Return the result of the first extractor that finds something."""
    return next((found for name in names if (found := EXTRACTORS[name](text)) is not None), None)


def normal(text: str) -> str:
    """An answer in the form in which two equal ones are equal texts: for votes, and to compare short texts."""
    text = re.sub(r"\\(?:text|mathrm|mathbf|textbf|operatorname)\s*\{([^{}]*)\}", r"\1", text.strip())
    text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"(\1)/(\2)", text)
    text = re.sub(r"\((\w+)\)/\((\w+)\)", r"\1/\2", text)
    text = (
        re.sub(r"\\(?:left|right|displaystyle|[!,;: ])|[$~]|\\?%|\^\{?\\circ\}?|°", "", text)
        .strip()
        .rstrip(".")
        .strip()
    )
    value = as_number(text)
    if value is not None:
        return f"{value.normalize():f}"
    text = re.sub(r"[\"'`*_]", "", text.lower())
    words = SPACES.sub(" ", ARTICLES.sub(" ", text)).strip()
    return words or text.strip()  # the letter a is an answer too


def as_number(text: str) -> Decimal | None:
    """The value of a number as people write it."""
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.strip().lstrip("$+"))
    if not re.fullmatch(r"-?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})", plain):
        return None
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None
