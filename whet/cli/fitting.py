"""Text for the terminal that it is printed on: paragraphs and columns wrapped to its width, commands left whole."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator

_FEWEST_COLUMNS = 30  # for the second of two columns; with less room it stands below the first
_TWO_COLUMNS = re.compile(r"( *\S.*?\S?  +)(\S.*)")


def columns() -> int | None:
    """Return the width to wrap text to; None where output goes to a file or a pipe and COLUMNS does not say."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def fitted(text: str, width: int | None) -> str:
    """Wrap a page of help to `width` columns; None, or a width in which it fits, leaves it as it is.

    Lines without indentation are paragraphs. Indented ones are rows: a name, two spaces or more, and what it means,
    which may go on below itself. Lines of usage and below "Examples:" are commands, to be copied, and stay as they are.
    """
    if width is None or max(map(len, text.splitlines()), default=0) <= width:
        return text
    lines: list[str] = []
    for block in text.split("\n\n"):
        rows = block.splitlines()
        if rows and rows[0].startswith(("usage:", "Examples:")):
            lines += [*rows, ""]
        else:
            lines += [*_block(rows, width), ""]
    return "\n".join(lines[:-1])


def _block(rows: list[str], width: int) -> Iterator[str]:
    """Yield the lines of a paragraph, or of rows in two columns."""
    if not any(row.startswith(" ") for row in rows):
        yield from textwrap.wrap(" ".join(rows), width, break_long_words=False, break_on_hyphens=False)
        return
    for name, meaning in _rows(rows):
        below = " " * (len(name) if width - len(name) >= _FEWEST_COLUMNS else 6)
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
