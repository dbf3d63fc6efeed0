"""Python objects as data: a list of dicts, a `datasets.Dataset`, a pandas frame or an Arrow table become JSON lines.

Images (PIL, or bytes) are stored in the rows as data: URLs, so that the file holds everything a run reads. Nothing here
imports pandas or datasets; their objects are known by what they offer.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.api.inputs import Inputs
from whet.data.columns import MISSING, lookup
from whet.data.files import Resolve, Table, read_tables
from whet.errors import UserError

KINDS = "a path, a list of dicts, a datasets.Dataset or a pandas frame"
_DEEPEST = 32  # levels of a value in a row
_MISSING = ("NAType", "NaTType")  # pandas' marks of a missing value
_JPEG = "JPEG"


def data_files(data: Any, name: str, inputs: Inputs) -> str:
    """Return what `data.train_files` says for `data`: its path, or the file in which its rows are kept."""
    named = _named(data, name)
    if named is not None:
        return named
    return str(inputs.add(name, ".jsonl", rows_as_lines(data, name)))


def prompts_file(prompts: Any, key: str, inputs: Inputs) -> str:
    """Write prompts to sample from as `data_files` does; they may also be texts: one, or a list of them."""
    return data_files(_texts_as_rows(prompts, key), "prompts", inputs)


def prompt_tables(prompts: Any, prompt_key: str, answer_key: str, resolve: Resolve) -> list[Table]:
    """Return the rows of prompts as tables, with an empty answer where rows have none."""
    prompts = _texts_as_rows(prompts, prompt_key)
    named = _named(prompts, "prompts")
    if named is not None:
        tables = read_tables(named, "prompts", resolve)
    else:
        tables = [Table("prompts", [json.loads(line) for line in rows_as_lines(prompts, "prompts").splitlines()])]
    for table in tables:
        for row in table.rows:
            if lookup(row, answer_key) is MISSING:
                row[answer_key] = None
    return tables


def _texts_as_rows(prompts: Any, key: str) -> Any:
    if isinstance(prompts, str) and not _is_data_name(prompts):
        prompts = [prompts]
    if isinstance(prompts, list | tuple) and prompts and all(isinstance(each, str) for each in prompts):
        return [{key: each} for each in prompts]
    return prompts


def rows_as_lines(data: Any, name: str) -> bytes:
    """Return the rows of a Python object as JSON lines."""
    lines = []
    for number, row in enumerate(_readable(_rows(data, name), name), start=1):
        where = f"{name}: row {number}"
        if not isinstance(row, Mapping):
            raise UserError(f"{where}: expected a dict from column names to values, got {_kind(row)}")
        for column in row:
            if not isinstance(column, str):
                raise UserError(
                    f"{where}: the column name {column!r} is no text but {_kind(column)}; rename the column"
                )
        plain = {column: _plain(value, f"{where}, column {column!r}", 0) for column, value in row.items()}
        lines.append(json.dumps(plain, default=str))
    if not lines:
        raise UserError(f"{name} is empty: it has no rows. Give {KINDS}.")
    return ("\n".join(lines) + "\n").encode()


def _readable(rows: Iterator[Any], name: str) -> Iterator[Any]:
    """Yield rows; what the caller's object raises while it is read becomes a `UserError`."""
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{name}: its rows cannot be read: {type(error).__name__}: {error}") from error
        yield row


def _named(data: Any, name: str) -> str | None:
    """Return the files that paths name, or None for rows."""
    if isinstance(data, os.PathLike):
        data = os.fspath(data)
    if isinstance(data, str):
        if not data.strip():
            raise UserError(f"{name} is empty; give {KINDS}")
        return data
    if isinstance(data, list | tuple) and data and all(isinstance(each, str | os.PathLike) for each in data):
        names = [str(os.fspath(each)) for each in data]
        for each in names:
            if "," in each or not each.strip():
                raise UserError(f"{name}: the path {each!r} cannot be one of several, which are joined by commas")
        return ",".join(names)
    return None


def _is_data_name(text: str) -> bool:
    """True for text that names data rather than being a prompt: a file that exists or a name without spaces."""
    try:
        return os.path.exists(text.rpartition("@")[0] or text) or (text.startswith("whet/") and " " not in text)
    except ValueError:  # a null character
        return False


def _rows(data: Any, name: str) -> Iterator[Any]:
    """Iterate over the rows of any kind of table."""
    if data is None or isinstance(data, bytes | int | float | bool):
        raise UserError(f"{name}: expected {KINDS}, got {_shown(data)}")
    if _is_from(data, "pandas") and hasattr(type(data), "to_dict") and hasattr(type(data), "columns"):
        columns = list(data.columns)
        if len(set(columns)) < len(columns):
            raise UserError(f"{name}: the frame has two columns of one name; rename one of them")
        yield from data.to_dict("records")
    elif _is_from(data, "datasets") and isinstance(data, Mapping):
        raise UserError(f"{name} has several splits ({', '.join(map(str, data))}); give one, such as data['train']")
    elif _is_from(data, "datasets") and not hasattr(type(data), "__len__"):
        raise UserError(f"{name} is a stream, which may have no end; give a part of it: list(data.take(1000))")
    elif hasattr(type(data), "to_pylist") and hasattr(type(data), "column_names"):  # of pyarrow
        yield from data.to_pylist()
    elif isinstance(data, Mapping):
        raise UserError(f"{name}: expected a list with a dict for each row, got {_kind(data)}")
    elif isinstance(data, Sequence) or _is_from(data, "datasets"):
        yield from data
    else:
        raise UserError(f"{name}: expected {KINDS}, got {_kind(data)}; list(...) makes a list of an iterator's rows")


def _plain(value: Any, where: str, depth: int) -> Any:
    """Return a value as JSON holds it."""
    if depth > _DEEPEST:
        raise UserError(f"{where}: the value is nested more than {_DEEPEST} levels deep, or contains itself")
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if value is None or isinstance(value, str | bool | int):
        return str(value) if isinstance(value, str) else value
    if type(value).__name__ in _MISSING:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return _data_url(bytes(value))
    if isinstance(value, Mapping):
        return _mapping(value, where, depth)
    if isinstance(value, list | tuple):
        return [_plain(each, where, depth + 1) for each in value]
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if hasattr(type(value), "save") and hasattr(type(value), "getbands"):  # an image of PIL
        return _data_url(_encoded(value, where))
    if hasattr(type(value), "tolist") and hasattr(type(value), "dtype"):  # of numpy or torch: an array or a scalar
        return _plain(value.tolist(), where, depth + 1)
    raise UserError(
        f"{where}: a value of type {_kind(value)} cannot be stored; use text, numbers, lists, dicts, images or bytes"
    )


def _mapping(value: Mapping[Any, Any], where: str, depth: int) -> Any:
    content = value.get("bytes")
    if isinstance(content, bytes | bytearray) and set(value) <= {"bytes", "path"}:  # an image of datasets, not decoded
        return _data_url(bytes(content))
    for key in value:
        if not isinstance(key, str):
            raise UserError(f"{where}: the key {key!r} of a dict is no text but {_kind(key)}; write it as text")
    return {key: _plain(each, where, depth + 1) for key, each in value.items()}


def _encoded(image: Any, where: str) -> bytes:
    """Return the bytes of a PIL image: its own file where it has one, else PNG."""
    file = getattr(image, "filename", "")
    try:
        if file and Path(file).is_file() and getattr(image, "format", None) == _JPEG:
            return Path(file).read_bytes()
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        return buffer.getvalue()
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: the image cannot be stored: {error}") from error


def _data_url(content: bytes) -> str:
    return f"data:application/octet-stream;base64,{base64.b64encode(content).decode()}"


def _is_from(value: Any, package: str) -> bool:
    return any(str(each.__module__).partition(".")[0] == package for each in type(value).__mro__)


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
