"""Rewrite lists of CommonMark for Python-Markdown, which MkDocs uses.

In CommonMark what belongs to an item stands below its text: two columns for `- `, three for `1. `. Python-Markdown
wants four columns, and a blank line before a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])( +)(?=\S)")
_FENCE = re.compile(r" *(`{3,}|~{3,})")


def rewritten(markdown: str) -> str:
    """Return the same text with items indented by four columns for each level."""
    return "\n".join(_lines(markdown.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    columns: list[int] = []  # where the text of each open item begins, outermost first
    fence, before = "", ""
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            yield _placed(line, columns)
            before = line
            continue
        if not line.strip():
            yield line
            before = line
            continue
        item = _ITEM.match(line)
        lazy = bool(before.strip()) and item is None and mark is None and not line.startswith(("#", "|", ">"))
        while columns and indent < columns[-1] and not lazy:
            columns.pop()
        # Four columns or more below the innermost text are code, and no item.
        if item and indent - (columns[-1] if columns else 0) < 4:
            if before.strip() and not columns and not _ITEM.match(before):
                yield ""
            yield "    " * len(columns) + item[2] + " " + line[item.end() :]
            columns.append(item.end())
        else:
            yield _placed(line, columns)
            fence = mark[1] if mark else ""
        before = line


def _placed(line: str, columns: list[int]) -> str:
    """Return a line below the text of the innermost item, with the indentation that it has beyond that."""
    inner = columns[-1] if columns else 0
    indent = len(line) - len(line.lstrip(" "))
    return "    " * len(columns) + line[min(indent, inner) :] if line.strip() else line
