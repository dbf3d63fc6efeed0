"""Images and videos of a row as the data holds them, before any of them is opened."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from whet.data.formats import Columns


class MediaError(Exception):
    """An image or video that cannot be used, and why; whoever knows the row adds it."""


@dataclass(slots=True)
class Sources:
    """Undecoded images and videos of a prompt, in the order of their placeholders."""

    images: list[Any] = field(default_factory=list)
    videos: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.images or self.videos)


def column_items(row: Columns, name: str) -> list[Any]:
    """The images or videos of a column: a list, one alone, or a list written as JSON."""
    value = row.get(name)
    if isinstance(value, str) and value.strip().startswith("["):
        with suppress(ValueError, RecursionError):  # a name in brackets, then
            value = json.loads(value)
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
