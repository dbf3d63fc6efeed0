"""Texts that a config may hold: what no file name, no YAML file and no terminal can take is refused where it enters."""

from __future__ import annotations

from typing import Any

from whet.errors import UserError

LONGEST_NAME = 255  # bytes of one file name on the usual file systems
LONGEST_PATH = 4096
LARGEST = 2**63 - 1  # what YAML, JSON, Arrow and torch have room for


def printable(text: str) -> str:
    """The text with control characters and lone surrogates written as escapes, so that it can be shown anywhere."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def size_text(count: float) -> str:
    """Return a number of bytes in GB, or in MB where it is less than a tenth of one."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def text_problem(text: str) -> str | None:
    """Why no key can hold this text, or None."""
    if "\0" in text:
        return "holds a NUL character; remove it"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "holds bytes or escapes that are no Unicode text (a lone surrogate); write it in UTF-8"
    return None


def name_problem(text: str) -> str | None:
    """Why this text names no file, column or address, or None: it is one line, of names the file system can hold."""
    control = next((c for c in text if ord(c) < 32 or ord(c) == 127), None)
    if control is not None:
        return f"holds the control character {printable(control)}; a name is one line of text"
    for path in text.split(","):  # of data files there may be several
        size = len(path.encode("utf-8"))
        if size > LONGEST_PATH:
            return f"has {size} bytes; a path has at most {LONGEST_PATH}"
        longest = max(len(part.encode("utf-8")) for part in path.split("/"))
        if longest > LONGEST_NAME:
            return f"has a part of {longest} bytes; a file or folder name has at most {LONGEST_NAME}"
    return None


def nested_problem(value: Any) -> str | None:
    """Why a list or mapping cannot be held, or None: one of its texts or numbers, at any depth."""
    if isinstance(value, str):
        return text_problem(value)
    if isinstance(value, dict):
        found = (nested_problem(item) for pair in value.items() for item in pair)
        return next((each for each in found if each), None)
    if isinstance(value, list | tuple):
        return next((each for each in map(nested_problem, value) if each), None)
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"holds an integer that is too large: at most {LARGEST}"
    if value is None or isinstance(value, int | float):
        return None
    return f"holds a {type(value).__name__}; write texts, numbers, true, false, null, lists and mappings"


def check_arguments(arguments: list[str]) -> None:
    """Raise a `UserError` for an argument of the command line that is no text."""
    for number, argument in enumerate(arguments, start=1):
        problem = text_problem(argument)
        if problem:
            shown = printable(argument)
            raise UserError(f"argument {number} ({shown if len(shown) <= 80 else shown[:77] + '...'}) {problem}")
