"""Timelines of steps: when stages and groups began and ended, from timeline.jsonl."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_STEP = re.compile(rb'\{"step": (\d{1,15}),')
_LONGEST = 4_000_000  # bytes of a line that is parsed


class TimelineFiles:
    """Places of steps in the files of runs; only what was appended is read again. Safe to use from several threads."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, dict[int, tuple[int, int]]]] = {}  # bytes read, place and size by step
        self._lock = threading.Lock()

    def read(self, folder: Path, step: int) -> dict[str, Any] | None:
        """Return the timeline of a step; None if the run has none. A step that was redone has its last one."""
        file = folder / "timeline.jsonl"
        try:
            place = self._index(file).get(step)
            if place is None:
                return None
            with file.open("rb") as content:
                content.seek(place[0])
                return _checked(json.loads(content.read(place[1])))
        except (OSError, ValueError, RecursionError):
            return None

    def steps(self, folder: Path) -> list[int]:
        """Return the steps that have a timeline."""
        try:
            return sorted(self._index(folder / "timeline.jsonl"))
        except OSError:
            return []

    def _index(self, file: Path) -> dict[int, tuple[int, int]]:
        size = file.stat().st_size
        with self._lock:
            read, places = self._known.get(file, (0, {}))
            if size < read:  # written anew
                read, places = 0, {}
            if size > read:
                places = dict(places)  # others may be reading the old one
                read = self._add(file, read, places)
                self._known[file] = (read, places)
            return places

    def _add(self, file: Path, read: int, places: dict[int, tuple[int, int]]) -> int:
        """Index whole lines behind the first `read` bytes; return how many bytes are indexed now."""
        with file.open("rb") as content:
            content.seek(read)
            for line in content:
                if not line.endswith(b"\n"):
                    break
                match = _STEP.match(line)
                if match and len(line) <= _LONGEST:
                    places[int(match[1])] = (read, len(line))
                read += len(line)
        return read


def _checked(record: Any) -> dict[str, Any] | None:
    """Return a line as the page can draw it: finite numbers only, and nothing that is not one."""
    if not isinstance(record, Mapping):
        return None
    stages = [[str(each[0])[:60], *each[1:3]] for each in _rows(record.get("stages"), 3) if _numbers(each[1:3])]
    groups = [each[:4] for each in _rows(record.get("groups"), 4) if _numbers(each[:4])]
    numbers = {name: record[name] if _numbers([record.get(name)]) else None for name in ("began", "seconds")}
    return {**numbers, "stages": stages, "groups": groups, "all_groups": record.get("all_groups")}


def _rows(value: Any, least: int) -> list[list[Any]]:
    return [each for each in value if isinstance(each, list) and len(each) >= least] if isinstance(value, list) else []


def _numbers(values: list[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values)
