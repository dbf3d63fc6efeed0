"""Files that a job reads and that came as Python objects: rows, functions, templates.

They are written into the folder of the job under a name made of their contents, so that a run can be repeated from its
config.yaml alone, and a second call never changes what a first one reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from whet.checkpoint.durable import replacing
from whet.errors import UserError

FOLDER = "inputs"


class Inputs:
    """Collects files for one job; nothing is written before `written`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute() / FOLDER
        self._files: dict[Path, bytes] = {}

    def add(self, name: str, suffix: str, content: bytes) -> Path:
        """Plan a file and return its path; equal contents have one path."""
        path = self._folder / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}{suffix}"
        self._files[path] = content
        return path

    @contextmanager
    def written(self) -> Iterator[None]:
        """Write every file that is not there yet, each in one piece; a job that never starts leaves nothing behind."""
        made: list[Path] = []
        try:
            self._write(made)
            yield
        except UserError:
            if not (self._folder.parent / "config.yaml").exists():
                self._remove(made)
            raise

    def _remove(self, made: list[Path]) -> None:
        for path in made:
            path.unlink(missing_ok=True)
        for folder in (self._folder, self._folder.parent):
            with suppress(OSError):  # not empty: somebody else's
                folder.rmdir()

    def _write(self, made: list[Path]) -> None:
        try:
            for path, content in self._files.items():
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with replacing(path) as side:
                        side.write_bytes(content)
                    made.append(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"output: cannot write to {self._folder}: {reason}. Choose a folder that this user "
                "can write to, on a disk with room."
            ) from error
