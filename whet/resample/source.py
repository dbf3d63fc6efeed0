"""The sample to draw again, as the run folder holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from whet.errors import UserError
from whet.resample.request import Request
from whet.tracking.token_records import FOLDER
from whet.types import Segment

READ_ERRORS = (OSError, ValueError, TypeError, KeyError, pa.ArrowException)
_COLUMNS = ("step", "uid", "index", "group", "prompt", "response", "finish", "length", "turns", "version", "reward")
_TOKENS = ("token_ids", "token_mask", "token_log_probs")


@dataclass(frozen=True, slots=True)
class Source:
    """A sample of a run. Tokens are None where the run kept none of it."""

    row: dict[str, Any]
    ids: list[int] | None = None
    mask: list[int] | None = None
    log_probs: list[float] | None = None  # the sampler's
    versions: list[int] | None = None

    @property
    def sample_id(self) -> int:
        """Number that names the sample for the random numbers."""
        return int(self.row["group"]) + int(self.row["index"])

    @property
    def version(self) -> int:
        """Oldest policy version that wrote a token of it."""
        return int(self.row["version"])

    def segments(self) -> list[Segment]:
        """Return the response in segments: consecutive tokens of one author and one policy version."""
        assert self.ids is not None, "asked for only where tokens are known"
        mask = self.mask or [1] * len(self.ids)
        versions = self.versions or [self.version] * len(self.ids)
        log_probs = self.log_probs or [0.0] * len(self.ids)
        segments: list[Segment] = []
        for token, own, version, value in zip(self.ids, mask, versions, log_probs, strict=True):
            last = segments[-1] if segments else None
            if last is None or last.by_model != bool(own) or (own and last.version != version):
                last = Segment([], bool(own), [], version if own else 0)
                segments.append(last)
            last.ids.append(token)
            last.log_probs += [value] if own else []
        return segments


def read_source(folder: Path, request: Request) -> Source:
    """Read a sample, with its tokens from the samples or from the token records."""
    file = folder / "samples" / f"{request.split}_{request.step:06d}.parquet"
    if not file.is_file():
        raise UserError(f"{folder} has no {request.split} samples of step {request.step} (trainer.log_samples)")
    rows = read_rows(file, (*_COLUMNS, *_TOKENS))
    if request.row >= len(rows):
        raise UserError(f"{file.name} has {len(rows)} samples; there is no row {request.row}")
    row = rows[request.row]
    if row.get("group") is None:
        raise UserError(f"{file.name}: its samples have no group, so that their random numbers are not known")
    recorded = _recorded(folder, request)
    known = recorded or {
        "token_ids": row.get("token_ids"),
        "token_mask": row.get("token_mask"),
        "sampler_log_probs": row.get("token_log_probs"),
    }
    source = Source(
        {name: row.get(name) for name in _COLUMNS},
        known.get("token_ids"),
        known.get("token_mask"),
        known.get("sampler_log_probs"),
        known.get("versions"),
    )
    if source.ids is not None and len(source.ids) != row["length"]:
        return Source(source.row)  # tokens of another sample: a record that outlived its step
    return source


def read_rows(file: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Read the columns that a file has, row by row."""
    try:
        with pq.ParquetFile(file) as content:
            names = [name for name in columns if name in content.schema_arrow.names]
            found: list[dict[str, Any]] = content.read(names).to_pylist()
    except READ_ERRORS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{file} is damaged: {reason}") from error
    return found


def _recorded(folder: Path, request: Request) -> dict[str, Any] | None:
    file = folder / FOLDER / f"{request.split}_{request.step:06d}.parquet"
    if not file.is_file():
        return None
    names = ("row", "token_ids", "token_mask", "versions", "sampler_log_probs")
    try:
        return next((each for each in read_rows(file, names) if each.get("row") == request.row), None)
    except UserError:
        return None  # a damaged record: the samples may have the tokens too
