"""Text for the terminal that it is printed on: paragraphs, columns and commands wrapped to its width."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator

_FEWEST_COLUMNS = 30  # for the second of two columns; with less room it stands below the first
_TWO_COLUMNS = re.compile(r"( *\S.*?\S?  +)(\S.*)")
_WORD = re.compile(
    r"""\[[^\]]*\]|(?:'[^']*'|"[^"]*"|\S)+"""
)  # an optional part of a usage line, or an argument of a command


def columns() -> int | None:
    """Return the width to wrap text to; None where output goes to a file or a pipe and COLUMNS does not say."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def fitted(text: str, width: int | None) -> str:
    """Wrap a page of help to `width` columns; None, or a width in which it fits, leaves it as it is.

    Lines without indentation are paragraphs. Indented ones are rows: a name, two spaces or more, and what it means,
    which may go on below itself. Lines of usage and below "Examples:" are broken between arguments; examples with a
    backslash, so that they can be copied as they stand.
    """
    if width is None or max(map(len, text.splitlines()), default=0) <= width:
        return text
    lines: list[str] = []
    for block in text.split("\n\n"):
        rows = block.splitlines()
        if rows and rows[0].startswith(("usage:", "Examples:")):
            mark = " \\" if rows[0].startswith("Examples:") else ""
            lines += [*(line for row in rows for line in _command(row, width, mark)), ""]
        else:
            lines += [*_block(rows, width), ""]
    return "\n".join(lines[:-1])


def _command(row: str, width: int, mark: str) -> Iterator[str]:
    """Yield the lines of a command; `mark` ends those that go on below. An argument is never broken."""
    indent = row[: len(row) - len(row.lstrip())]
    words = _WORD.findall(row)
    line = indent + words[0]
    below = (indent or " " * len("usage: ")) + "    "
    for i, word in enumerate(words[1:], start=1):
        if len(line) + 1 + len(word) + (len(mark) if i < len(words) - 1 else 0) > width:
            yield line + mark
            line = below + word
        else:
            line += f" {word}"
    yield line


def _block(rows: list[str], width: int) -> Iterator[str]:
    """Yield the lines of a paragraph, or of rows in two columns."""
    if not any(row.startswith(" ") for row in rows):
        yield from textwrap.wrap(" ".join(rows), width, break_long_words=False, break_on_hyphens=False)
        return
    for name, meaning in _rows(rows):
        room = max(_FEWEST_COLUMNS, *map(len, meaning.split()), 0)
        below = " " * (len(name) if width - len(name) >= room else 6)
        first = name if len(below) == len(name) else below
        if first == below != name:
            yield name.rstrip()
        yield from textwrap.wrap(
            meaning,
            width,
            initial_indent=first,
            subsequent_indent=below,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _rows(rows: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the two columns of each row; a line whose first column is empty goes on with the row above."""
    found: list[tuple[str, str]] = []
    for row in rows:
        indent = len(row) - len(row.lstrip())
        parts = _TWO_COLUMNS.fullmatch(row)
        if found and indent > 8 and indent == len(found[-1][0]):
            found[-1] = (found[-1][0], f"{found[-1][1]} {row.strip()}")
        elif parts is not None:
            found.append((parts[1], parts[2]))
        else:
            found.append((" " * indent, row.strip()))
    yield from found
