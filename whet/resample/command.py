"""`whet resample`: answer one request about a run and print it."""

from __future__ import annotations

import json
from pathlib import Path

from whet.resample.job import resample
from whet.resample.printing import as_text
from whet.resample.request import Request


def show(folder: Path, request: Request, as_json: bool) -> None:
    """Print the answer, for people or as JSON."""
    found = resample(folder, request)
    print(json.dumps(found, ensure_ascii=False, allow_nan=False) if as_json else as_text(found))
