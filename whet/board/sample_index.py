"""Index of a run's samples in memory: what filters and orders read, so that a query reads no file.

It is built by a thread when a run is first looked at, and extended as files appear; until it is ready, queries read the
files themselves. Numbers come first, in an index of their own; texts follow, in lower case, while they fit: longer runs
are searched for text in their files.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whet.board.sample_files import READ_ERRORS, SampleFile, damage

NUMBERS = {
    "step": pa.int64(),
    "length": pa.int64(),
    "version": pa.int64(),
    "reward": pa.float64(),
    "advantage": pa.float64(),
    "uid": pa.string(),
}
TEXTS = ("prompt", "response")
MOST_TEXT = 400_000_000  # bytes of texts of all runs together
_SMALL_CHUNKS = 32  # tables of single files after which they are joined
_LEAST_ROWS = 5_000  # of runs whose files are not read quickly enough as they are


@dataclass(frozen=True, slots=True)
class Indexed:
    """The index of some files. `file` of a row is a place in `files`; `has_texts` says whether texts are in it."""

    table: pa.Table
    files: Sequence[SampleFile]
    has_texts: bool
    damaged: Sequence[str]


class _Build:
    """What is indexed of one run and split."""

    def __init__(self, texts: bool) -> None:
        self.states: dict[Path, tuple[int, int]] = {}
        self.files: list[SampleFile] = []
        self.tables: list[pa.Table] = []
        self.damaged: dict[Path, str] = {}
        self.has_texts = texts
        self.thread: threading.Thread | None = None
        self.lock = threading.Lock()

    def covers(self, files: Sequence[SampleFile]) -> bool:
        """True if exactly these files, as they are, are indexed."""
        return len(files) == len(self.states) and all(self.states.get(file.path) == file.state for file in files)


class SampleIndex:
    """Indexes of runs, the ones used last kept. Safe to use from several threads."""

    def __init__(self, texts: bool, first: SampleIndex | None = None) -> None:
        """Index numbers, and `texts` where they are wanted; what `first` builds of a run is waited for."""
        self._texts, self._first = texts, first
        self._builds: dict[tuple[Path, str], _Build] = {}
        self._lock = threading.Lock()

    def find(self, folder: Path, split: str, files: Sequence[SampleFile]) -> Indexed | None:
        """Return the index of these files if it is there; else begin to build it, for a run that is large enough."""
        if sum(file.rows for file in files) < _LEAST_ROWS:
            return None
        with self._lock:
            build = self._builds.setdefault((folder, split), _Build(self._texts))
        with build.lock:
            if build.covers(files):
                table = pa.concat_tables(build.tables)
                return Indexed(table, list(build.files), build.has_texts, list(build.damaged.values()))
            if build.thread is None or not build.thread.is_alive():
                before = self._first.thread(folder, split) if self._first is not None else None
                build.thread = threading.Thread(target=self._extend, args=(build, list(files), before), daemon=True)
                build.thread.start()
        return None

    def thread(self, folder: Path, split: str) -> threading.Thread | None:
        """Return what is building the index of a run, or has built it."""
        with self._lock:
            build = self._builds.get((folder, split))
        return build.thread if build is not None else None

    def _extend(self, build: _Build, files: Sequence[SampleFile], before: threading.Thread | None) -> None:
        """Read files that are not indexed yet; where one has changed or is gone, all are read anew."""
        if before is not None:
            before.join()
        wanted = {file.path: file.state for file in files}
        with build.lock:
            if any(wanted.get(path) != state for path, state in build.states.items()):
                build.states, build.files, build.tables, build.damaged = {}, [], [], {}
                build.has_texts = self._texts
        for file in files:
            if file.path in build.states:
                continue
            try:
                table = _read(file, len(build.files), build.has_texts)
            except READ_ERRORS as error:
                with build.lock:
                    build.damaged[file.path] = damage(file.path, error)
                    build.states[file.path] = file.state
                continue
            with build.lock:
                build.tables.append(table if build.has_texts else _without_texts(table))
                build.files.append(file)
                build.states[file.path] = file.state
                if sum(each.num_rows < _LEAST_ROWS for each in build.tables) > _SMALL_CHUNKS:
                    _join_small(build)
            self._bound()

    def _bound(self) -> None:
        """Drop texts of the largest index while those of all runs take too much memory."""
        with self._lock:
            builds = list(self._builds.values())
        while True:
            sizes = [(sum(_text_bytes(table) for table in build.tables), build) for build in builds if build.has_texts]
            if sum(size for size, _ in sizes) <= MOST_TEXT:
                return
            _, largest = max(sizes, key=lambda each: each[0])
            with largest.lock:
                largest.has_texts = False
                largest.tables = [_without_texts(table) for table in largest.tables]


def _join_small(build: _Build) -> None:
    """Join the tables of single files, which a query would visit one by one, into a larger one."""
    small = [table for table in build.tables if table.num_rows < _LEAST_ROWS]
    large = [table for table in build.tables if table.num_rows >= _LEAST_ROWS]
    build.tables = [*large, pa.concat_tables(small).combine_chunks()]


def _read(file: SampleFile, place: int, with_texts: bool) -> pa.Table:
    texts = TEXTS if with_texts else ()
    columns = [name for name in (*NUMBERS, *texts) if name in file.columns]
    table = pq.read_table(file.path, columns=columns, partitioning=None, use_threads=False)
    rows = table.num_rows
    found = {
        name: table[name].cast(kind).combine_chunks() if name in table.column_names else pa.nulls(rows, kind)
        for name, kind in NUMBERS.items()
    }
    for name in texts:
        found[name] = pc.utf8_lower(table[name].cast(pa.large_string())).combine_chunks()
    found["file"] = pa.array(np.full(rows, place, np.int32))
    found["row"] = pa.array(np.arange(rows, dtype=np.int32))
    return pa.table(found)


def _without_texts(table: pa.Table) -> pa.Table:
    return table.drop_columns([name for name in TEXTS if name in table.column_names])


def _text_bytes(table: pa.Table) -> int:
    return sum(table[name].nbytes for name in TEXTS if name in table.column_names)
