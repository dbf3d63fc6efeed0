"""Requests to a run that is going on: empty files in `requests/` of its folder, read between two steps."""

from __future__ import annotations

from pathlib import Path

ACTIONS = ("stop", "save", "validate")
FOLDER = "requests"


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
