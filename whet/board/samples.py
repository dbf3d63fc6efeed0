"""Samples of a run for the board: pages of a list, groups side by side, one sample with its tokens.

Texts are cut to what a page can show, and say how long they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from whet.board import arrow_query
from whet.board.filters import LISTED, Filters, Page
from whet.board.histograms import histograms
from whet.board.pictures import kept_pictures
from whet.board.sample_files import READ_ERRORS, Listing, SampleFile, SampleFiles, damage
from whet.board.sample_index import Indexed, SampleIndex
from whet.board.tokens import read_record, token_view
from whet.errors import UserError

_EXCERPT = 1200  # characters of a text in a list
_EPISODE = ("end", "turn_rewards", "turn_tokens")
_WHOLE = 400_000  # characters of a text in the view of one sample


class Samples:
    """Samples of run folders. Safe to use from several threads."""

    def __init__(self, use_duckdb: bool | None = None) -> None:
        """Query with DuckDB if it is installed, unless told otherwise."""
        self._files, self._numbers = SampleFiles(), SampleIndex(texts=False)
        self._texts = SampleIndex(texts=True, first=self._numbers)
        self._use_duckdb = find_spec("duckdb") is not None if use_duckdb is None else use_duckdb

    def steps(self, folder: Path, split: str) -> dict[str, Any]:
        """Return the steps with samples, their number, and sentences about damaged files."""
        listing = self._files.list(folder, split)
        if self._use_duckdb:
            files = list(listing.files.values())  # indexes are built while somebody looks
            self._numbers.find(folder, split, files)
            self._texts.find(folder, split, files)
        total = sum(file.rows for file in listing.files.values())
        return {"steps": list(listing.files), "samples": total, "damaged": list(listing.damaged)}

    def query(self, folder: Path, split: str, filters: Filters, page: Page) -> dict[str, Any]:
        """Return a page of the samples that pass."""
        listing = self._files.list(folder, split)
        files = _of_step(listing, filters.step)
        index = None
        if self._use_duckdb and filters.step is None:
            index = (self._texts if filters.text else self._numbers).find(folder, split, files)
        total, rows, damaged = self._query(files, filters, page, index)
        return {"total": total, "rows": [_row(row, _EXCERPT) for row in rows], "damaged": [*listing.damaged, *damaged]}

    def groups(self, folder: Path, split: str, step: int, offset: int, limit: int) -> dict[str, Any]:
        """Return a page of a step's groups in the order of their samples, each with its samples side by side."""
        listing = self._files.list(folder, split)
        file = _file(listing, step, split)
        try:
            rows = arrow_query.read_rows(file)
        except READ_ERRORS as error:
            raise UserError(damage(file.path, error)) from error
        together: dict[Any, list[dict[str, Any]]] = {}
        for row in rows:
            key = row["uid"] if row.get("group") is None else (row["uid"], row["group"])
            together.setdefault(key, []).append(row)
        shown = list(together.values())[offset : offset + limit]
        return {
            "total": len(together),
            "groups": [[_row(row, _EXCERPT) for row in group] for group in shown],
            "damaged": list(listing.damaged),
        }

    def sample(self, folder: Path, split: str, step: int, row: int) -> dict[str, Any]:
        """Return everything about one sample, with the texts of its tokens where the run kept them."""
        file = _file(self._files.list(folder, split), step, split)
        if not 0 <= row < file.rows:
            raise UserError(f"{file.path.name} has {file.rows} samples; there is no row {row}")
        try:
            values = _read_row(file, row)
        except READ_ERRORS as error:
            raise UserError(damage(file.path, error)) from error
        record = read_record(folder, split, step, row, values["length"])
        tokens = token_view(folder, values, record)
        more = {name: _plain(values[name]) for name in values if name in _EPISODE or name.startswith("info/")}
        pictures = kept_pictures(folder, record)
        return _row(values | {"row": row}, _WHOLE) | {"tokens": tokens, "episode": more, "pictures": pictures}

    def histograms(self, folder: Path, split: str, step: int) -> dict[str, Any]:
        """Return histograms of a step's samples."""
        file = _file(self._files.list(folder, split), step, split)
        try:
            return histograms(file)
        except READ_ERRORS as error:
            raise UserError(damage(file.path, error)) from error

    def _query(
        self, files: Sequence[SampleFile], filters: Filters, page: Page, index: Indexed | None
    ) -> tuple[int, list[dict[str, Any]], list[str]]:
        if self._use_duckdb:
            import duckdb

            from whet.board import duckdb_query

            try:
                if index is not None and (index.has_texts or not filters.text):
                    return duckdb_query.query_index(index, filters, page)
                return duckdb_query.query(files, filters, page)
            except (duckdb.Error, *READ_ERRORS):
                pass  # a damaged file: the other query leaves it out, and says which it is
        return arrow_query.query(files, filters, page)


def _of_step(listing: Listing, step: int | None) -> list[SampleFile]:
    return [file for at, file in listing.files.items() if step is None or at == step]


def _file(listing: Listing, step: int, split: str) -> SampleFile:
    if step not in listing.files:
        raise UserError(" ".join([f"there are no {split} samples of step {step}.", *listing.damaged[:3]]))
    return listing.files[step]


def _read_row(file: SampleFile, row: int) -> dict[str, Any]:
    """Read one row, from its row group alone."""
    with pq.ParquetFile(file.path) as content:
        for i in range(content.num_row_groups):
            inside = content.metadata.row_group(i).num_rows
            if row < inside:
                values: dict[str, Any] = content.read_row_group(i).slice(row, 1).to_pylist()[0]
                return values
            row -= inside
    raise ValueError("its row groups hold fewer rows than its footer says")


def _row(values: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return a row as JSON can hold it, with long texts cut."""
    row: dict[str, Any] = {name: _plain(values.get(name)) for name in (*LISTED, "row")}
    for name in ("prompt", "response", "answer"):
        text = row[name] or ""
        row |= {name: text[:most], f"{name}_chars": len(text)}
    row["scores"] = _named(values, "score/")
    row["notes"] = {name: str(text)[:most] for name, text in _named(values, "note/").items()}
    return row


def _named(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): _plain(value)
        for name, value in values.items()
        if name.startswith(prefix) and value is not None
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
