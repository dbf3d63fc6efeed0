"""`DataSet`: where a data set's rows are, and how one of them becomes a question with its truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.config.problems import hint
from whet.config.registry import Registry
from whet.data.columns import MISSING, column_names, lookup
from whet.data.formats import Columns
from whet.errors import UserError


class Drop(Exception):  # noqa: N818
    """A row that is left out; the message is the reason, by which rows are counted in the card."""


@dataclass(frozen=True)
class Item:
    """One question, before a schema names its columns."""

    question: str | list[dict[str, Any]]  # plain text, or a chat
    answer: Any  # the ground truth
    data_source: str  # by which scorers are chosen
    ability: str = "math"
    style: str = "rule"  # of verl's reward_model column; model = a reward model scores it
    images: tuple[Any, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # further columns
    key: Any = None  # rows of one split with the same key are duplicates; None = not looked for
    chat: list[dict[str, Any]] | None = None  # the data set's own, which verl's schema keeps


@dataclass(frozen=True)
class DataSet:
    """A data set of the hub, and the function that reads its rows.

    `convert(row, split)` returns the item of a row, raises `Drop` for one that is left out, and `UserError` where the
    row has other columns than the hub's files.
    """

    title: str
    home: str  # repository of the hub
    splits: Mapping[str, str]  # name of the split → where it is on the hub, as data.train_files has it
    convert: Callable[[Columns, str], Item]
    columns: str  # columns of the hub's files, for the help and for errors
    instruction: str = ""  # stands behind the question in verl's schema, which has no templates
    template: str = ""  # example of data.format_prompt that asks in whet's schema
    note: str = ""  # a sentence for the card


class _Sets(Registry):
    def label(self, name: str) -> str:
        """Return how a user writes a data set."""
        return f"whet data {name}"

    def find(self, name: str, file: Any = None) -> DataSet:
        """Return the data set of this name."""
        if name not in self.names:
            raise UserError(f"whet data: there is no data set {name}{hint(name, self.names)} (whet data --list)")
        found: DataSet = super().find(name)
        return found


SETS = _Sets("whet data", "whet.prepare.sets", "SET", entry_points="whet.data_sets")


def column(row: Columns, *names: str) -> Any:
    """The value of the first of these columns that the row has; UserError where it has none of them."""
    found = next((value for name in names if (value := lookup(row, name)) is not MISSING), MISSING)
    if found is MISSING:
        raise UserError(f"has no column {' or '.join(names)}; its columns: {', '.join(column_names(row))}")
    return found


def text(row: Columns, *names: str) -> str:
    """The text of a column; `Drop` where it is empty, UserError where it holds something else."""
    value = column(row, *names)
    if value is None or value == "":
        raise Drop(f"empty {names[0]}")
    if not isinstance(value, str):
        raise UserError(f"column {' or '.join(names)} holds {type(value).__name__}, expected text")
    if not value.strip():
        raise Drop(f"empty {names[0]}")
    return value.strip()


def chat(row: Columns, name: str = "prompt") -> list[dict[str, Any]]:
    """The chat of a column, a list of turns; `Drop` where it is empty."""
    value = column(row, name)
    if not isinstance(value, list) or not all(
        isinstance(turn, dict) and {"role", "content"} <= {*turn} for turn in value
    ):
        raise UserError(f"column {name} holds no list of turns with role and content")
    if not any(str(turn["content"]).strip() for turn in value):
        raise Drop(f"empty {name}")
    return value
