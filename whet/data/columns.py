"""Finding a value in a row by the name a config key gives, and saying what was there when it is not."""

from __future__ import annotations

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


def missing_column(row: Columns, uid: str, name: str, key: str) -> UserError:
    """The error for a row without the column that a config key names."""
    names = column_names(row)
    usual = next((known for known in USUAL_NAMES[key] if known in names), None)
    guess = nearest(name, row) or usual or nearest(name, names)
    hint = f" Did you mean {key}={guess}?" if guess else f" Set {key} to one of them."
    return UserError(f"{key}={name}: {uid} has no such column. Its columns: {', '.join(names)}.{hint}")
