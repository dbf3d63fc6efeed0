"""One data file becomes a list of rows: JSON lines, JSON, CSV, Parquet, Arrow or a pickle, known by its extension.

A row is a dict of plain Python values. Nothing is decoded here beyond the file's own format: an image stays the path
or the bytes it was written as. Whatever is wrong with a file is said with the file and the line or row.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from whet.errors import UserError

Columns = dict[str, Any]
DEEPEST = 50  # levels of lists and objects in a row
LARGEST = 2**63 - 1
LARGEST_CELL = 1 << 30  # characters; the csv module's own limit is 131,072, less than a picture in base64


def read_file(path: Path) -> list[Columns]:
    """Read all rows of one data file."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: cannot read files of kind {path.suffix or 'without extension'!r}. Known: {KNOWN}.")
    if not os.path.isfile(path):  # reading a pipe or a device may never end
        raise UserError(f"{path}: is no ordinary file. Write the data to one.")
    try:
        rows = list(reader(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}).") from error
    for number, row in enumerate(rows, start=1):
        problem = _problem(row)
        if problem:
            raise UserError(f"{path}, row {number}: {problem}")
    if not rows:
        raise UserError(f"{path}: the file holds no rows.")
    return rows


def _problem(value: Any, depth: int = 0) -> str | None:
    """Why a value can neither be tokenized nor written to a file of samples, or None."""
    if isinstance(value, str):
        return None if value.isascii() else _encoding_problem(value)
    if isinstance(value, dict | list):
        if depth == DEEPEST:
            return f"is nested more than {DEEPEST} levels deep."
        for item in value.values() if isinstance(value, dict) else value:
            problem = _problem(item, depth + 1)
            if problem:
                return problem
        names = value if isinstance(value, dict) else ()
        return next((problem for problem in map(_problem, names) if problem), None)
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"holds an integer of {value.bit_length()} bits, more than 64. Write it as text."
    return None


def _encoding_problem(text: str) -> str | None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"holds half of a character, \\u{ord(text[error.start]):04x}, which is no text. Remove it."
    return None


def _json_lines(path: Path) -> Iterator[Columns]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            text = _utf8(line, path, number).strip()
            if text:
                value = _parse_json(text, path, number)
                yield _as_columns(value, f"{path}:{number}")


def _json(path: Path) -> Iterator[Columns]:
    text = _utf8(path.read_bytes(), path, 1)
    if not text.strip():
        return
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        # Many files called .json hold JSON lines: the first object is whole and more text follows it.
        if error.msg == "Extra data":
            yield from _json_lines(path)
            return
        raise UserError(f"{path}:{error.lineno}: not valid JSON ({error.msg}, column {error.colno}).") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {_beyond(error)}") from error
    for number, item in enumerate(_only_list(value, path), start=1):
        yield _as_columns(item, f"{path}, row {number}")


def _only_list(value: Any, path: Path) -> list[Any]:
    """The rows of a JSON document: the list that it is, or the one list that it holds."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise UserError(f"{path}: a list of objects is needed, this file holds a {_json_kind(value)}.")
    lists = [name for name, item in value.items() if isinstance(item, list)]
    if len(lists) != 1:
        found = f"{len(lists)} lists ({', '.join(lists)})" if lists else "no list"
        raise UserError(f"{path}: a list of objects, or an object with one such list, is needed; found {found}.")
    return value[lists[0]]


def _csv(path: Path) -> Iterator[Columns]:
    text = _utf8(path.read_bytes(), path, 1)
    csv.field_size_limit(LARGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        if len(set(header)) != len(header) or "" in header:
            raise UserError(f"{path}:1: the first line must name each column once, it says: {', '.join(header)}.")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise UserError(
                    f"{path}:{reader.line_num}: {len(cells)} cells under {len(header)} column names. "
                    "Put cells that hold commas or line breaks in double quotes."
                )
            yield dict(zip(header, cells))
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not valid CSV ({error}).") from error


def _utf8(data: bytes, path: Path, first_line: int) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise UserError(f"{path}:{line}: not UTF-8 text. Save the file with UTF-8 encoding.") from error


def _parse_json(text: str, path: Path, number: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{number}: not valid JSON ({error.msg}, column {error.colno}). Each line must hold one JSON object."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}:{number}: {_beyond(error)}") from error


def _beyond(error: Exception) -> str:
    """Describe the problem of JSON that is valid but cannot be represented."""
    if isinstance(error, RecursionError):
        return f"is nested more than {DEEPEST} levels deep."
    return "holds an integer of thousands of digits. Write it as text."


def _as_columns(value: Any, where: str) -> Columns:
    if not isinstance(value, dict):
        raise UserError(f"{where}: a row must be a JSON object with named columns, this one is a {_json_kind(value)}.")
    return value


def _json_kind(value: Any) -> str:
    kinds = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _parquet(path: Path) -> Iterable[Columns]:
    from whet.data.arrow import read_parquet

    return read_parquet(path)


def _pickle(path: Path) -> Iterable[Columns]:
    from whet.data.pickles import read_pickle

    return read_pickle(path)


def _arrow(path: Path) -> Iterable[Columns]:
    from whet.data.arrow import read_arrow

    return read_arrow(path)


READERS: dict[str, Callable[[Path], Iterable[Columns]]] = {
    ".jsonl": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".pkl": _pickle,
    ".pickle": _pickle,
}
KNOWN = ", ".join(READERS)
