"""Query samples with pyarrow, a file after the other: slower than DuckDB, and always there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whet.board.filters import LISTED, Filters, Page
from whet.board.sample_files import READ_ERRORS, SampleFile, damage

Place = tuple[int, int]  # index of the file, and row in it


def query(files: Sequence[SampleFile], filters: Filters, page: Page) -> tuple[int, list[dict[str, Any]], list[str]]:
    """Return the number of samples that pass, the rows of a page, and sentences about files that are damaged."""
    found: list[tuple[bool, float, Place]] = []
    damaged: list[str] = []
    for i, file in enumerate(files):
        try:
            found += [(missing, key, (i, row)) for missing, key, row in _matches(file, filters, page)]
        except READ_ERRORS as error:
            damaged.append(damage(file.path, error))
    found.sort()
    chosen = [place for _, _, place in found[page.offset : page.offset + page.limit]]
    rows: dict[Place, dict[str, Any]] = {}
    for i in sorted({i for i, _ in chosen}):
        wanted = [row for at, row in chosen if at == i]
        try:
            rows |= {(i, row): values for row, values in zip(wanted, read_rows(files[i], wanted))}
        except READ_ERRORS as error:  # in columns that the filters do not read: ask again without this file
            total, others, more = query([file for file in files if file is not files[i]], filters, page)
            return total, others, [damage(files[i].path, error), *more]
    return len(found), [rows[place] for place in chosen], damaged


def read_rows(file: SampleFile, rows: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """Return rows of a file, all of them where none are named, without token columns and with their number as `row`."""
    columns = [name for name in file.columns if name in LISTED or name.startswith(("score/", "note/"))]
    table = pq.read_table(file.path, columns=columns, partitioning=None)
    numbers = range(table.num_rows) if rows is None else rows
    taken = table if rows is None else table.take(list(rows))
    return [values | {"row": row} for row, values in zip(numbers, taken.to_pylist())]


def _matches(file: SampleFile, filters: Filters, page: Page) -> list[tuple[bool, float, int]]:
    """Return the rows that pass, each with its place in the order: False and a number, or True without a value."""
    needed = {"step", "reward", "length", "uid", "version", page.order} | (
        {"prompt", "response"} if filters.text else set()
    )
    table = pq.read_table(file.path, columns=[name for name in file.columns if name in needed], partitioning=None)
    keep = _mask(table, filters)
    column = table[page.order].to_pylist() if page.order in table.column_names else [None] * table.num_rows
    sign = -1 if page.descending else 1
    found = []
    for row, (passes, value) in enumerate(zip(keep.to_pylist(), column)):
        if passes:
            missing = value is None or math.isnan(value)
            found.append((missing, 0.0 if missing else float(sign * value), row))
    return found


def _mask(table: pa.Table, filters: Filters) -> Any:
    keep: Any = pa.array([True] * table.num_rows)
    conditions: list[Any] = []
    if filters.step is not None:
        conditions.append(pc.equal(table["step"], filters.step))
    if filters.uid is not None:
        conditions.append(pc.equal(table["uid"], filters.uid))
    if filters.version is not None:
        versions = table["version"] if "version" in table.column_names else pa.nulls(table.num_rows, pa.int64())
        conditions.append(pc.equal(versions, filters.version))
    for name, low, high in (
        ("reward", filters.min_reward, filters.max_reward),
        ("length", filters.min_length, filters.max_length),
    ):
        if low is not None:
            conditions.append(pc.greater_equal(table[name], low))
        if high is not None:
            conditions.append(pc.less_equal(table[name], high))
    if filters.text:
        inside = [pc.match_substring(table[name], filters.text, ignore_case=True) for name in ("prompt", "response")]
        conditions.append(pc.or_kleene(*inside))
    for condition in conditions:
        keep = pc.and_(keep, pc.fill_null(condition, False))
    return keep
