"""Files that a job reads and that came as Python objects: rows, functions, templates.

They are written into the folder of the job under a name made of their contents, so that a run can be repeated from its
config.yaml alone, and a second call never changes what a first one reads.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from whet.checkpoint.durable import replacing
from whet.errors import UserError

FOLDER = "inputs"


class Inputs:
    """Collects files for one job; nothing is written before `write`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute() / FOLDER
        self._files: dict[Path, bytes] = {}

    def add(self, name: str, suffix: str, content: bytes) -> Path:
        """Plan a file and return its path; equal contents have one path."""
        path = self._folder / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}{suffix}"
        self._files[path] = content
        return path

    def write(self) -> None:
        """Write every file that is not there yet, each in one piece."""
        try:
            for path, content in self._files.items():
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with replacing(path) as side:
                        side.write_bytes(content)
        except OSError as error:
            raise UserError(
                f"output: cannot write to {self._folder}: {error.strerror or error}. Choose a folder that this user "
                "can write to, on a disk with room."
            ) from error
