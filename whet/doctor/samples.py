"""Samples of a run as rules read them: texts of its first and last steps, and of its last validation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from whet.doctor.findings import Finding

Row = Mapping[str, Any]

MOST_ROWS = 1024  # of a file
MOST_STEPS = 4  # first files of training, for rules about the data
LONGEST = 20_000  # characters of a text that are looked at
_NAME = re.compile(r"(train|val)_(\d{1,12})\.parquet")
_COLUMNS = ("uid", "group", "prompt", "response", "answer", "finish", "length", "turns", "reward", "media", "end")


@dataclass(frozen=True, slots=True)
class RunSamples:
    """Rows by step, those of the first steps and of the last; `validated` are those of the last validation."""

    first: Mapping[int, Sequence[Row]] = field(default_factory=dict)
    last_step: int = 0
    last: Sequence[Row] = ()
    validated: Sequence[Row] = ()


class SampleRule(Protocol):
    """A rule that reads samples of a finished or stopped run, or of one that goes on."""

    def __call__(self, samples: RunSamples) -> Finding | None:
        """Return what was found, or None."""


def read_samples(folder: Path) -> RunSamples:
    """Read the files that rules look at; damaged ones are left out."""
    try:
        named = [(_NAME.fullmatch(path.name), path) for path in (folder / "samples").iterdir()]
    except OSError:
        return RunSamples()
    files = {
        split: sorted((int(match[2]), path) for match, path in named if match and match[1] == split)
        for split in ("train", "val")
    }
    first = {step: rows for step, path in files["train"][:MOST_STEPS] if (rows := _read(path))}
    last_step, last = next(((step, rows) for step, path in files["train"][-2:][::-1] if (rows := _read(path))), (0, []))
    validated = _read(files["val"][-1][1]) if files["val"] else []
    return RunSamples(first, last_step, last, validated)


def _read(path: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = [name for name in _COLUMNS if name in file.schema_arrow.names]
            batch = next(file.iter_batches(MOST_ROWS, columns=names), None)
            rows = batch.to_pylist() if batch is not None else []
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException):
        return []
    cut = ("prompt", "response", "answer")
    return [{name: str(v)[:LONGEST] if name in cut and v is not None else v for name, v in row.items()} for row in rows]
