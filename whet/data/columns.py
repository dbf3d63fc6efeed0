"""Columns of a row: a value by the name that a config key gives, and images and videos before they are opened."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from whet.config import nearest
from whet.data.formats import Columns
from whet.errors import UserError

MISSING = object()
# Where other trainers' files keep what ours calls prompt and answer, in the order of likelihood.
USUAL_NAMES = {
    "data.prompt_key": ("prompt", "problem", "question", "messages", "instruction", "input"),
    "data.answer_key": ("answer", "reward_model.ground_truth", "ground_truth", "solution", "target", "output"),
    "sft.response_key": ("response", "completion", "output", "answer", "solution", "target"),
}


def lookup(row: Columns, name: str) -> Any:
    """The value of a column, or of a field inside it (`reward_model.ground_truth`); MISSING when there is none."""
    if name in row:
        return row[name]
    column, dot, field = name.partition(".")
    inner = row.get(column)
    if dot and isinstance(inner, dict):
        return lookup(inner, field)
    return MISSING


def column_names(row: Columns) -> list[str]:
    """The names `lookup` knows in this row: its columns, and the fields of those that hold objects."""
    names = []
    for name, value in row.items():
        names.append(name)
        if isinstance(value, dict):
            names += [f"{name}.{field}" for field in value]
    return names


def missing_column(row: Columns, uid: str, name: str, key: str, others: bool = False, but: str = "") -> UserError:
    """The error for a row without the column that a config key names.

    `others` says that other rows have it; `but` names a column that cannot be meant.
    """
    if others:
        return UserError(f"{key}={name}: {uid} has no such column, other rows have. Fill it in or remove the row.")
    names = column_names(row)
    usual = next((known for known in USUAL_NAMES[key] if known in names), None)
    guess = nearest(name, row.keys() - {but}) or usual or nearest(name, [each for each in names if each != but])
    hint = f" Did you mean {key}={guess}?" if guess else f" Set {key} to one of them."
    return UserError(f"{key}={name}: {uid} has no such column. Its columns: {', '.join(names)}.{hint}")


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
