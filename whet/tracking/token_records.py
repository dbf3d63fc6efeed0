"""Token records: what an update knew of each token of a few samples, in Parquet files of bounded size.

`tokens/train_000012.parquet` holds a row for each recorded sample of step 12; `row` is its row in the file of the same
name in samples/. A step that is redone replaces its file. Writing does not wait for the disk. Pictures of these samples
are files of their own (`tracking/pictures.py`), which may take as much room again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from whet.checkpoint.durable import replacing
from whet.types import Sample

if TYPE_CHECKING:
    from whet.tracking.pictures import Kept, PictureFiles

FOLDER = "tokens"
ROW_GROUP = 32  # samples that are read to show one
_NAME = re.compile(r"train_(\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One sample as the update saw it: lists of a number for each token of the response."""

    row: int  # in the step's file of samples
    sample: Sample
    advantages: list[float]
    old_log_probs: list[float]  # of the policy before the update
    new_log_probs: list[float] | None  # in the forward pass of its mini-batch; None where none was made
    entropies: list[float] | None


class TokenFiles:
    """The files of a run's token records. The folder is listed once, and again when it outgrows its limit."""

    def __init__(self, folder: Path, limit_bytes: int, pictures: Path | None = None) -> None:
        """Keep files in `folder`, and those of pictures in `pictures`; None: without them."""
        self._folder, self._limit = folder, limit_bytes
        self._total: int | None = None  # bytes of all files; None: not known yet
        self._pictures = pictures
        self._picture_files: PictureFiles | None = None

    def write(self, step: int, records: Sequence[TokenRecord]) -> None:
        """Write the records of a step, and remove those of earlier steps until the folder is within its limit."""
        if self._total is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._total = sum(size for _, _, size in _list(self._folder))
        file = self._folder / f"train_{step:06d}.parquet"
        before = file.stat().st_size if file.exists() else 0  # a step that is redone
        with replacing(file, durable=False) as side:
            # Dictionaries and statistics of columns would take half of the time, and nobody asks for them.
            pq.write_table(
                records_table(step, records, self._keep([record.sample for record in records])),
                side,
                compression="snappy",
                row_group_size=ROW_GROUP,
                use_dictionary=False,
                write_statistics=False,
            )
        self._total += file.stat().st_size - before
        if self._total > self._limit:
            self._total = _thin_out(self._folder, self._limit)

    def _keep(self, samples: Sequence[Sample]) -> list[list[Kept]] | None:
        """Write the pictures of samples; None where there are none."""
        if self._pictures is None or all(not _media(sample) for sample in samples):
            return None
        if self._picture_files is None:
            from whet.tracking.pictures import PictureFiles

            self._picture_files = PictureFiles(self._pictures, self._limit)
        return self._picture_files.keep(samples)


def _media(sample: Sample) -> bool:
    return sample.prompt.media is not None or any(segment.media is not None for segment in sample.segments)


def records_table(step: int, records: Sequence[TokenRecord], pictures: list[list[Kept]] | None = None) -> pa.Table:
    """Return the columns that docs/metrics.md lists, a row for each sample."""
    samples, floats = [record.sample for record in records], pa.list_(pa.float32())
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "step": (pa.int64(), [step] * len(records)),
        "row": (pa.int64(), [record.row for record in records]),
        "group": (pa.int64(), [sample.group for sample in samples]),
        "index": (pa.int64(), [sample.index for sample in samples]),
        "token_ids": (pa.list_(pa.int32()), [sample.ids for sample in samples]),
        "token_mask": (pa.list_(pa.int8()), [sample.mask for sample in samples]),
        "versions": (pa.list_(pa.int32()), [sample.versions for sample in samples]),
        "sampler_log_probs": (floats, [sample.log_probs for sample in samples]),
        "old_log_probs": (floats, [record.old_log_probs for record in records]),
        "new_log_probs": (floats, [record.new_log_probs for record in records]),
        "entropies": (floats, [record.entropies for record in records]),
        "advantages": (floats, [record.advantages for record in records]),
    }
    if pictures is not None:
        kind = pa.list_(pa.struct([("at", pa.int32()), ("file", pa.string())]))
        columns["pictures"] = (kind, pictures)
    return pa.table({name: pa.array(values, type=kind) for name, (kind, values) in columns.items()})


def _thin_out(folder: Path, limit_bytes: int) -> int:
    """Remove files, never the first or the last, so that what is left lies evenly over the steps; return its bytes.

    The next to go is the one whose neighbours are closest to each other, the oldest of those alike. What is removed
    depends on the files alone, so that a resumed run goes on as it would have.
    """
    files = _list(folder)
    total = sum(size for _, _, size in files)
    while total > limit_bytes and len(files) > 2:
        gaps = [(after[0] - before[0], i) for i, (before, after) in enumerate(zip(files, files[2:]), start=1)]
        _, path, size = files.pop(min(gaps)[1])
        path.unlink(missing_ok=True)
        total -= size
    return total


def _list(folder: Path) -> list[tuple[int, Path, int]]:
    """Return step, path and size of each file, in the order of their steps."""
    named = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted((int(match[1]), path, path.stat().st_size) for match, path in named if match)
