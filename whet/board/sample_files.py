"""Parquet files of a run's samples: which there are, what columns they have, and which are damaged.

Footers are read once for each state of a file. A file that cannot be read, or lacks a column that every version of whet
writes, is listed as damaged and left out of every query.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SPLITS = ("train", "val")
READ_ERRORS = (OSError, ValueError, TypeError, KeyError, pa.ArrowException)  # of files that anybody may have written
_NAME = re.compile(r"(train|val)_(\d{1,12})\.parquet")
_NEEDED = {
    "step": pa.types.is_integer,
    "uid": pa.types.is_string,
    "prompt": pa.types.is_string,
    "response": pa.types.is_string,
    "length": pa.types.is_integer,
    "reward": pa.types.is_floating,
}
_MOST_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class SampleFile:
    """One readable file: the samples of a step."""

    path: Path
    step: int
    rows: int
    columns: tuple[str, ...]
    state: tuple[int, int] = (0, 0)  # time of its last change, and size


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of one split by step, and a sentence for each that is damaged."""

    files: Mapping[int, SampleFile] = field(default_factory=dict)
    damaged: Sequence[str] = ()


class SampleFiles:
    """Listings of run folders. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[tuple[int, int], SampleFile | str]] = {}
        self._lock = threading.Lock()

    def list(self, folder: Path, split: str) -> Listing:
        """Return the files of a run's split, in the order of their steps."""
        try:
            matches = [(_NAME.fullmatch(path.name), path) for path in (folder / "samples").iterdir()]
        except OSError:
            return Listing()
        steps = sorted((int(match[2]), path) for match, path in matches if match and match[1] == split)
        found = [self._open(path, step) for step, path in steps]
        files = {each.step: each for each in found if isinstance(each, SampleFile)}
        return Listing(files, [each for each in found if isinstance(each, str)])

    def _open(self, path: Path, step: int) -> SampleFile | str:
        try:
            stat = path.stat()
        except OSError as error:
            return f"{path.name} cannot be read: {error.strerror or error}"
        state = (stat.st_mtime_ns, stat.st_size)
        with self._lock:
            known = self._kept.get(path)
        if known is None or known[0] != state:
            known = (state, _read_footer(path, step, state))
            with self._lock:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[path] = known
        return known[1]


def _read_footer(path: Path, step: int, state: tuple[int, int]) -> SampleFile | str:
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except READ_ERRORS as error:
        return damage(path, error)
    for name, has_type in _NEEDED.items():
        if name not in schema.names or not has_type(schema.field(name).type):
            return f"{path.name} holds no samples of whet: its column {name} is missing or of another type"
    return SampleFile(path, step, rows, tuple(schema.names), state)


def damage(path: Path, error: Exception) -> str:
    """Return the sentence about a file that cannot be read."""
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return f"{path.name} is damaged and left out: {reason}"
