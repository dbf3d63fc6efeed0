"""One data file becomes a list of rows: JSON lines, JSON, CSV, Parquet, Arrow or a pickle, known by its extension.

JSON lines are read here, the other kinds in modules of their own.

A row is a dict of plain Python values. Nothing is decoded here beyond the file's own format: an image stays the path
or the bytes it was written as. Whatever is wrong with a file is said with the file and the line or row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from whet.errors import UserError

Columns = dict[str, Any]
DEEPEST = 50  # levels of lists and objects in a row
LARGEST = 2**63 - 1
PACKED = (".gz", ".zip", ".zst", ".bz2", ".xz", ".tar", ".tgz")


def read_file(path: Path) -> list[Columns]:
    """Read all rows of one data file."""
    module, _, function = READERS.get(path.suffix.lower(), "").partition(".")
    if not module:
        advice = "Unpack it" if path.suffix.lower() in PACKED else "Convert it to one of them"
        kind = path.suffix or "without extension"
        raise UserError(f"{path}: cannot read files of kind {kind!r}. Known: {KNOWN}. {advice}.")
    if not os.path.isfile(path):  # reading a pipe or a device may never end
        raise UserError(f"{path}: is no ordinary file. Write the data to one.")
    try:
        rows = list(getattr(import_module(f"whet.data.{module}"), function)(path))
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


def json_lines(path: Path) -> Iterator[Columns]:
    """Read one JSON object from each line that is not blank."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            text = utf8(line, path, number).strip()
            if text:
                value = _parse_json(text, path, number)
                yield as_columns(value, f"{path}:{number}")


def utf8(data: bytes, path: Path, first_line: int) -> str:
    """Decode the bytes of a file that begin in `first_line`."""
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
        raise UserError(f"{path}:{number}: {beyond(error)}") from error


def beyond(error: Exception) -> str:
    """Describe the problem of JSON that is valid but cannot be represented."""
    if isinstance(error, RecursionError):
        return f"is nested more than {DEEPEST} levels deep."
    return "holds an integer of thousands of digits. Write it as text."


def as_columns(value: Any, where: str) -> Columns:
    """Return a row as it is if it has named columns."""
    if not isinstance(value, dict):
        hint = " A file that holds one list of rows is named .json." if isinstance(value, list) else ""
        raise UserError(
            f"{where}: a row must be a JSON object with named columns, this one is a {json_kind(value)}.{hint}"
        )
    return value


def json_kind(value: Any) -> str:
    """Return what JSON calls the type of a value."""
    kinds = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


# The function that reads each kind, in a module of this package.
READERS = {
    ".jsonl": "formats.json_lines",
    ".json": "json_file.read_json",
    ".csv": "csv_file.read_csv",
    ".parquet": "arrow.read_parquet",
    ".arrow": "arrow.read_arrow",
    ".pkl": "pickles.read_pickle",
    ".pickle": "pickles.read_pickle",
}
KNOWN = ", ".join(READERS)
