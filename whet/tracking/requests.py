"""Requests to a run that is going on: files in `requests/` of its folder, read between two steps.

Most are empty; `replicas` holds a number, and `draw-NAME.json` what the engine is to draw, which `drawn-NAME.json`
answers.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import replacing

ACTIONS = ("stop", "save", "validate")
FOLDER = "requests"
REPLICAS = "replicas"  # of the engine, from now on
MOST_BYTES = 8_000_000  # of a request to draw
MOST_DRAWS = 4  # that are answered between two steps; further ones wait
_DRAW = re.compile(r"draw-([0-9a-f]{16})\.json")


def ask(folder: Path, action: str) -> None:
    """Leave a request; asking twice for the same is asking once."""
    if action not in ACTIONS:
        raise ValueError(f"{action}: a run can be asked to {', '.join(ACTIONS)}")
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / FOLDER / action).touch()


def take(folder: Path) -> list[str]:
    """Return what a run is asked for, and remove the requests; one that cannot be removed is not acted on."""
    taken = []
    for action in ACTIONS:
        try:
            (folder / FOLDER / action).unlink()
        except OSError:
            continue
        taken.append(action)
    return taken


def take_replicas(folder: Path) -> int | None:
    """Return how many replicas of the engine a run is asked to have, or None; the request is removed."""
    file = folder / FOLDER / REPLICAS
    try:
        if not file.exists():
            return None
        asked = file.read_text(encoding="ascii").strip()
        file.unlink()
    except (OSError, UnicodeDecodeError):
        return None
    return int(asked) if asked.isdecimal() and len(asked) < 6 and int(asked) > 0 else None


@dataclass(frozen=True, slots=True)
class Draw:
    """A request to draw samples, and where its answer goes."""

    file: Path
    content: Any

    def answer(self, found: Any) -> None:
        """Write the answer; where that fails, nobody is answered."""
        try:
            _write(answer_file(self.file), found)
        except OSError:
            return


def ask_draw(folder: Path, name: str, content: Any) -> Path:
    """Leave a request to draw under a name of 16 hexadecimal digits; return the file that its answer will be in."""
    (folder / FOLDER).mkdir(exist_ok=True)
    file = folder / FOLDER / f"draw-{name}.json"
    _write(file, content)
    return answer_file(file)


def answer_file(file: Path) -> Path:
    """Return the file of the answer to a request to draw."""
    return file.with_name(file.name.replace("draw-", "drawn-", 1))


def take_draws(folder: Path) -> list[Draw]:
    """Return the oldest requests to draw, and remove their files; one that is no JSON has the content None."""
    try:
        files = sorted((file for file in (folder / FOLDER).iterdir() if _DRAW.fullmatch(file.name)), key=_changed)
    except OSError:
        return []
    draws = []
    for file in files[:MOST_DRAWS]:
        try:
            content = json.loads(file.read_bytes()) if file.stat().st_size <= MOST_BYTES else None
        except (OSError, ValueError, RecursionError):
            content = None
        try:
            file.unlink()
        except OSError:
            continue
        draws.append(Draw(file, content))
    return draws


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _write(file: Path, content: Any) -> None:
    with replacing(file, durable=False) as side:
        side.write_text(json.dumps(content), encoding="utf-8")
