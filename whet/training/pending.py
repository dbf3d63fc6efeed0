"""Groups that asynchronous training has handed in and not trained on yet, in memory and in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.training.groups import group_from_record, group_record
from whet.types import Group


@dataclass(slots=True, eq=False)
class Waiting:
    """A row that was handed in to be sampled."""

    row: int
    ids: range  # of its samples
    version: int  # of the policy when it was handed in: no token is older
    group: Group | None = None  # once it is sampled and scored

    def record(self) -> dict[str, Any]:
        """Return what JSON keeps of it."""
        record: dict[str, Any] = {"row": self.row, "ids": [self.ids.start, self.ids.stop], "version": self.version}
        return record | {"group": None if self.group is None else group_record(self.group)}


def waiting_from_record(record: dict[str, Any], loader: PromptLoader[Any]) -> Waiting:
    """Return what a record was made of."""
    group = None if record["group"] is None else group_from_record(record["group"], loader)
    return Waiting(record["row"], range(*record["ids"]), record["version"], group)


def save_waiting(waiting: Sequence[Waiting], rows: Sequence[int], file: Path) -> None:
    """Write what waits, and the rows that were drawn and not handed in."""
    record = {"waiting": [each.record() for each in waiting], "rows": list(rows)}
    file.write_text(json.dumps(record), encoding="utf-8")


def load_waiting(file: Path, loader: PromptLoader[Any]) -> tuple[list[Waiting], list[int]]:
    """Read back what `save_waiting` wrote, to the last bit."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        rows = [int(row) for row in record["rows"]]
        return [waiting_from_record(each, loader) for each in record["waiting"]], rows
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise UserError(f"{file} does not hold samples of this data ({type(error).__name__}: {error})") from error
