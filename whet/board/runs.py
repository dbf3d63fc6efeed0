"""Run folders below the paths that the board was given, looked for again at every request for the list.

A run is named by a digest of its path; nothing that a request says is ever part of a path.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from whet.errors import UserError

_LOGGED = "metrics.jsonl"
_STARTED = ("run.log", ".lock")  # beside a config.yaml, which other folders may have too
_DEPTH = 4  # folders below a given one in which runs are looked for
_MOST_RUNS = 2000


class Runs:
    """The runs of a board by their ids. Safe to use from several threads."""

    def __init__(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if not path.is_dir():
                raise UserError(f"whet board: there is no folder {path}")
        self._paths = [path.resolve() for path in paths]
        self._known: dict[str, Path] = {}
        self._lock = threading.Lock()

    def find(self) -> dict[str, Path]:
        """Look for runs; return their folders by id, in the order of their paths."""
        found: dict[Path, None] = {}
        for path in self._paths:
            for folder in _below(path, _DEPTH):
                found.setdefault(folder)
                if len(found) >= _MOST_RUNS:
                    break
        known = {run_id(folder): folder for folder in found}
        with self._lock:
            self._known = known
        return known

    def folder(self, run: str) -> Path:
        """Return the folder of a run; a `UserError` if there is none of this id."""
        with self._lock:
            known = self._known.get(run)
        known = known or self.find().get(run)
        if known is None:
            raise UserError("the board has no such run; its folder may have been moved")
        return known

    def name(self, folder: Path) -> str:
        """Return the path of a run, as short as the given paths allow."""
        for path in self._paths:
            if folder == path:
                return folder.name
            if folder.is_relative_to(path):
                return str(folder.relative_to(path))
        return str(folder)


def run_id(folder: Path) -> str:
    """Return the name by which requests speak of a run."""
    return hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _below(folder: Path, depth: int) -> list[Path]:
    """Return the runs in a folder; a run holds no other runs, and links are not followed."""
    if _is_run(folder):
        return [folder]
    if not depth:
        return []
    try:
        inside = sorted(
            each for each in folder.iterdir() if each.is_dir() and not each.is_symlink() and each.name[0] != "."
        )
    except OSError:
        return []
    return [run for each in inside for run in _below(each, depth - 1)]


def _is_run(folder: Path) -> bool:
    """True if a run has logged something in a folder, or has begun there."""
    if (folder / _LOGGED).is_file():
        return True
    return (folder / "config.yaml").is_file() and any((folder / mark).is_file() for mark in _STARTED)
