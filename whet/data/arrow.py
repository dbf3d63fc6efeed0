"""Rows of Parquet and Arrow files, checked before they are touched.

Offsets, lengths and indices in such a file are taken at their word by whatever reads a value, and one that lies ends
the process. Every batch is therefore validated in full (offsets in order and inside their buffers, text in UTF-8)
before its values become Python's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from whet.errors import UserError

# What a file that was not written as it should be raises: beside Arrow's own, dates that Python does not have, unknown
# time zones, and sizes that no memory holds.
DAMAGE = (pa.ArrowException, ValueError, OverflowError, KeyError, MemoryError, NotImplementedError)
LEAST_BYTES = 200  # that a row takes as a dict


def read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file."""
    try:
        with pq.ParquetFile(path) as file:
            _check_names(file.schema_arrow, path)
            _check_count(file.metadata.num_rows, path)
            yield from _rows(file.iter_batches(), path)
    except DAMAGE as error:
        raise UserError(f"{path}: not a readable Parquet file ({_first_line(error)}).") from error


def read_arrow(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of an Arrow file, in the file format or the stream format (which the `datasets` library writes)."""
    try:
        with pa.OSFile(str(path)) as source:
            yield from _rows(_batches(source, path), path)
    except DAMAGE as error:
        raise UserError(f"{path}: not a readable Arrow file ({_first_line(error)}).") from error


def _batches(source: pa.NativeFile, path: Path) -> Iterator[pa.RecordBatch]:
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        _check_names(stream.schema, path)
        yield from stream
        return
    _check_names(file.schema, path)
    for index in range(file.num_record_batches):
        yield file.get_batch(index)


def _rows(batches: Iterator[pa.RecordBatch], path: Path) -> Iterator[dict[str, Any]]:
    count = 0
    for batch in batches:
        count += batch.num_rows
        _check_count(count, path)
        batch.validate(full=True)
        yield from batch.to_pylist()


def _check_names(schema: pa.Schema, path: Path) -> None:
    twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path}: two columns are called {twice!r}; rename one of them.")


def _check_count(rows: int, path: Path) -> None:
    """Refuse more rows than memory can hold: a file of a few bytes can claim any number of empty or equal ones."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if rows * LEAST_BYTES > memory:
        raise UserError(f"{path}: says that it has {rows:,} rows, more than this machine's memory holds; split it.")


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".")[:300] if lines else type(error).__name__
