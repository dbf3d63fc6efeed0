"""Query samples with DuckDB, over all files of a run at once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from whet.board.arrow_query import read_rows
from whet.board.filters import Filters, Page
from whet.board.sample_files import SampleFile
from whet.board.sample_index import Indexed

# Extensions are never loaded: those that DuckDB does not come with would be fetched from the network.
_OPTIONS: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "512MB",
    "threads": "2",
}
_CONDITIONS = {
    "step": "step = ?",
    "uid": "uid = ?",
    "version": "version = ?",
    "min_reward": "reward >= ? AND NOT isnan(reward)",
    "max_reward": "reward <= ?",
    "min_length": "length >= ?",
    "max_length": "length <= ?",
}


def query_index(index: Indexed, filters: Filters, page: Page) -> tuple[int, list[dict[str, Any]], list[str]]:
    """Return the same from an index in memory: only the rows of the page are read from files."""
    where, values = _where(filters, lowered=True)
    direction = "DESC" if page.descending else "ASC"
    cursor = _connection().cursor()
    try:
        # 1. One pass over the texts: where the samples that pass are, and what they are sorted by.
        cursor.register("samples", index.table)
        text = f'SELECT "file", "row", step, {_key(page.order)} AS key FROM samples WHERE {where}'
        cursor.execute(f"CREATE TEMP TABLE hits AS {text}", values)
        # 2. Their number and the page, from these alone.
        total = int(cursor.execute("SELECT count(*) FROM hits").fetchall()[0][0])
        text = f'SELECT "file", "row" FROM hits ORDER BY key {direction} NULLS LAST, step, "row" LIMIT ? OFFSET ?'
        found = cursor.execute(text, [page.limit, page.offset]).fetchall()
    finally:
        cursor.close()
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for place in {place for place, _ in found}:
        wanted = [row for at, row in found if at == place]
        rows |= {(place, row): content for row, content in zip(wanted, read_rows(index.files[place], wanted))}
    return total, [rows[place, row] for place, row in found], list(index.damaged)


def query(files: Sequence[SampleFile], filters: Filters, page: Page) -> tuple[int, list[dict[str, Any]], list[str]]:
    """Return the number of samples that pass, the rows of a page, and no sentences; raise if a file is damaged."""
    if not files:
        return 0, [], []
    order = page.order if any(page.order in file.columns for file in files) else "step"
    where, values = _where(filters)
    direction = "DESC" if page.descending else "ASC"
    text = (
        f"SELECT filename, file_row_number, count(*) OVER () AS total FROM {_SOURCE} WHERE {where} "
        f"ORDER BY {_key(order)} {direction} NULLS LAST, step, file_row_number LIMIT ? OFFSET ?"
    )
    paths = [str(file.path) for file in files]
    found = _run(text, [paths, *values, page.limit, page.offset])
    total = int(found[0][2]) if found else 0
    if not found and page.offset:
        total = int(_run(f"SELECT count(*) FROM {_SOURCE} WHERE {where}", [paths, *values])[0][0])
    by_path = {str(file.path): file for file in files}
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for path in {str(path) for path, _, _ in found}:
        wanted = [int(row) for at, row, _ in found if at == path]
        rows |= {(path, row): values for row, values in zip(wanted, read_rows(by_path[path], wanted))}
    return total, [rows[path, int(row)] for path, row, _ in found], []


_SOURCE = "read_parquet(?, union_by_name=true, file_row_number=true, filename=true)"


def _key(order: str) -> str:
    """Return what to sort by. A NaN is no value: DuckDB would take it for the largest."""
    return f'CASE WHEN isnan("{order}") THEN NULL ELSE "{order}" END' if order in ("reward", "advantage") else order


def _where(filters: Filters, lowered: bool = False) -> tuple[str, list[Any]]:
    """Return the conditions with a question mark for each value, and the values.

    With `lowered` the texts to look in are in lower case already.
    """
    given = [(text, getattr(filters, name)) for name, text in _CONDITIONS.items()]
    conditions, values = [], []
    for text, value in given:
        if value is not None:
            conditions.append(text)
            values.append(value)
    if filters.text:
        names = ["prompt", "response"] if lowered else ["lower(prompt)", "lower(response)"]
        conditions.append(f"({' OR '.join(f'contains({name}, lower(?))' for name in names)})")
        values += [filters.text, filters.text]
    return " AND ".join(conditions) or "true", values


def _run(text: str, values: list[Any]) -> list[tuple[Any, ...]]:
    return _connection().cursor().execute(text, values).fetchall()  # a cursor for each thread


@functools.cache
def _connection() -> Any:
    import duckdb

    return duckdb.connect(":memory:", config=dict(_OPTIONS))
