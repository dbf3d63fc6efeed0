"""Rows to a file: Parquet, JSON lines, JSON or a pickle of plain values, complete or not there."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import replacing
from whet.data.formats import Columns
from whet.errors import UserError


def write_rows(path: Path, rows: Sequence[Columns]) -> str:
    """Write rows in the format of the file's ending; returns the SHA-256 of the file."""
    write = WRITERS.get(path.suffix.lower())
    if write is None:
        raise UserError(f"{path}: rows are written as {', '.join(WRITERS)}; name a file with one of these endings")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as side:
            write(side, rows)
            with side.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from error
    return found


def _parquet(path: Path, rows: Sequence[Columns]) -> None:
    """Write columns; one whose values have no type in common is written as JSON texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    pq.write_table(pa.table(columns), path, compression="zstd")


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        found = pa.array(values)
        # Mappings of different keys become one struct with all of them, whose missing ones are null.
        return found if _kept(values, found.to_pylist()) else pa.array([_json_text(value) for value in values])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([_json_text(value) for value in values])


def _kept(before: Any, after: Any) -> bool:
    """True if a value was read back as it was written, but for keys that became null."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(_kept(value, after.get(name)) for name, value in before.items())
    if isinstance(before, list | tuple):
        return isinstance(after, list) and len(before) == len(after) and all(map(_kept, before, after))
    return before == after and isinstance(before, bool) == isinstance(after, bool)


def _json_text(value: Any) -> str | None:
    """A value as JSON; a text stays as it is."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=_unwritable)


def _json_lines(path: Path, rows: Sequence[Columns]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, default=_unwritable) + "\n")


def _json(path: Path, rows: Sequence[Columns]) -> None:
    path.write_text(json.dumps(list(rows), ensure_ascii=False, indent=1, default=_unwritable) + "\n", encoding="utf-8")


def _unwritable(value: Any) -> Any:
    kind = "bytes, such as an image" if isinstance(value, bytes) else type(value).__name__
    raise UserError(f"a row holds {kind}, which JSON has no place for: write Parquet")


def _pickle(path: Path, rows: Sequence[Columns]) -> None:
    """Write plain values only, which `whet/data/pickles.py` and Skywork-OR1's loader read."""
    with path.open("wb") as file:
        pickle.dump(list(rows), file, protocol=4)


WRITERS: dict[str, Callable[[Path, Sequence[Columns]], None]] = {
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".json": _json,
    ".pkl": _pickle,
}
