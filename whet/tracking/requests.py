"""Requests to a run that is going on: files in `requests/` of its folder, read between two steps.

Most are empty; `replicas` holds a number.
"""

from __future__ import annotations

from pathlib import Path

ACTIONS = ("stop", "save", "validate")
FOLDER = "requests"
REPLICAS = "replicas"  # of the engine, from now on


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
