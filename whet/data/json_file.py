"""A JSON document as rows: the list that it is, or the one list that it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.data.formats import Columns, as_columns, beyond, json_kind, json_lines, utf8
from whet.errors import UserError


def read_json(path: Path) -> Iterator[Columns]:
    """Read the rows of a JSON document."""
    text = utf8(path.read_bytes(), path, 1)
    if not text.strip():
        return
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        # Many files called .json hold JSON lines: the first object is whole and more text follows it.
        if error.msg == "Extra data":
            yield from json_lines(path)
            return
        raise UserError(f"{path}:{error.lineno}: not valid JSON ({error.msg}, column {error.colno}).") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {beyond(error)}") from error
    for number, item in enumerate(_only_list(value, path), start=1):
        yield as_columns(item, f"{path}, row {number}")


def _only_list(value: Any, path: Path) -> list[Any]:
    """The rows of a JSON document: the list that it is, or the one list that it holds."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise UserError(f"{path}: a list of objects is needed, this file holds a {json_kind(value)}.")
    lists = [name for name, item in value.items() if isinstance(item, list)]
    if len(lists) != 1:
        found = f"{len(lists)} lists ({', '.join(lists)})" if lists else "no list"
        raise UserError(f"{path}: a list of objects, or an object with one such list, is needed; found {found}.")
    return value[lists[0]]
