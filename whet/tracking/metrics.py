"""metrics.jsonl: one strict JSON object per line, only ever appended to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import append_line

NOT_FINITE = "not_finite"


def append_metrics(path: Path, step: int, metrics: Mapping[str, float]) -> None:
    """Append one durable line of strict JSON.

    A number that is not finite is null there, and `not_finite` of the line says what it is: "nan", "inf" or "-inf".
    """
    values = {name: _plain(value) for name, value in metrics.items()}
    broken = {name: str(value) for name, value in values.items() if not math.isfinite(value)}
    line: dict[str, Any] = {"step": step, **values} | dict.fromkeys(broken)
    append_line(path, json.dumps(line | ({NOT_FINITE: broken} if broken else {}), allow_nan=False))


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The metrics of a run by step: torn lines are skipped, and of what a step logged twice the last counts.

    Numbers that are not finite are floats again (nan, inf).

    A killed run logs a step again when it is redone; a run that only validates adds to a step that was trained before.
    """
    by_step: dict[int, dict[str, Any]] = {}
    for line in Path(path).read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            by_step.setdefault(record["step"], {}).update(record | _restored(record.pop(NOT_FINITE, None)))
    return [by_step[step] for step in sorted(by_step)]


def _restored(broken: Any) -> dict[str, float]:
    named = broken.items() if isinstance(broken, dict) else ()
    return {name: float(word) for name, word in named if word in ("nan", "inf", "-inf")}


def _plain(value: float) -> float | int:
    return value if isinstance(value, int) else float(value)
