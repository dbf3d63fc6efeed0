"""Names of files that come with a program: plain relative paths inside its private directory."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from whet.errors import UserError

MOST_FILES = 1000


def checked_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return files as a request carries them; UserError for names that lead out of the private directory."""
    if len(files) > MOST_FILES:
        raise UserError(f"files: {len(files)} files for one program; at most {MOST_FILES}")
    for name in files:
        check_name(name)
    return encoded_files(files)


def check_name(name: str) -> None:
    """Refuse a file name that is not a plain relative path."""
    parts = name.split("/")
    if not name or name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise UserError(f"files: {name[:80]!r} is not a relative path inside the program's directory")


def encoded_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return files as a request carries them."""
    return {name: base64.b64encode(content).decode() for name, content in files.items()}
