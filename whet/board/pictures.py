"""Pictures that a run kept of samples with token records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.errors import UserError

FOLDER = "pictures"
TYPES = {"png": "image/png", "jpg": "image/jpeg"}
_NAME = re.compile(r"[0-9a-f]{32}\.(png|jpg)")
_MOST = 200  # of one sample


def kept_pictures(folder: Path, record: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return file and place of the pictures in a token record; those that are gone are left out."""
    named = (record or {}).get("pictures")
    found = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
    return [
        {"at": each["at"], "file": each["file"]}
        for each in found[:_MOST]
        if isinstance(each.get("at"), int) and (folder / FOLDER / _checked(each.get("file"))).is_file()
    ]


def picture_file(folder: Path, name: str) -> tuple[Path, str]:
    """Return the file of a picture and its type; its name must be one that whet gives."""
    file = folder / FOLDER / _checked(name)
    if not file.is_file():
        raise UserError("the run has no such picture")
    return file, TYPES[file.suffix.removeprefix(".")]


def _checked(name: Any) -> str:
    return name if isinstance(name, str) and _NAME.fullmatch(name) else "-"
