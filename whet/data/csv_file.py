"""A CSV file as rows, all cells text; its first line names the columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from whet.data.formats import Columns, utf8
from whet.errors import UserError

LARGEST_CELL = 1 << 30  # characters; the csv module's own limit is 131,072, less than a picture in base64


def read_csv(path: Path) -> Iterator[Columns]:
    """Read the rows of a CSV file."""
    text = utf8(path.read_bytes(), path, 1)
    csv.field_size_limit(LARGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        if len(set(header)) != len(header) or "" in header:
            raise UserError(f"{path}:1: the first line must name each column once, it says: {', '.join(header)}.")
        if len(header) == 1 and (mark := next((mark for mark in ";\t|" if mark in header[0]), None)):
            raise UserError(f"{path}:1: the columns are separated by {mark!r}. Save the file with commas between them.")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise UserError(
                    f"{path}:{reader.line_num}: {len(cells)} cells under {len(header)} column names. "
                    "Put cells that hold commas or line breaks in double quotes."
                )
            yield dict(zip(header, cells))
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not valid CSV ({error}).") from error
