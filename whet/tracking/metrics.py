"""metrics.jsonl: one strict JSON object per line, only ever appended to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import append_line


def append_metrics(path: Path, step: int, metrics: Mapping[str, float]) -> None:
    """Append one durable line; a number that is not finite becomes null, which every JSON reader accepts."""
    line = {"step": step, **{name: _plain(value) for name, value in metrics.items()}}
    append_line(path, json.dumps(line, allow_nan=False))


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The metrics of a run by step: torn lines are skipped, and of what a step logged twice the last counts.

    A killed run logs a step again when it is redone; a run that only validates adds to a step that was trained before.
    """
    by_step: dict[int, dict[str, Any]] = {}
    for line in Path(path).read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            by_step.setdefault(record["step"], {}).update(record)
    return [by_step[step] for step in sorted(by_step)]


def _plain(value: float) -> float | int | None:
    if isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
