"""The samples of a prompt as one thing, and how those that wait for a later step are kept in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from whet.data.loader import PromptLoader
from whet.types import Sample

_FIELDS = [field.name for field in fields(Sample) if field.name != "prompt"]


@dataclass(slots=True)
class Group:
    """The samples of one prompt, and the row of the data that it came from."""

    row: int
    samples: list[Sample]


def save_groups(groups: Sequence[Group], file: Path) -> None:
    """Write groups; prompts are named by their rows."""
    records = [
        {"row": group.row, "samples": [{name: getattr(sample, name) for name in _FIELDS} for sample in group.samples]}
        for group in groups
    ]
    file.write_text(json.dumps(records), encoding="utf-8")


def load_groups(file: Path, loader: PromptLoader) -> list[Group]:
    """Read back what `save_groups` wrote, to the last bit."""
    groups = []
    for record in json.loads(file.read_text(encoding="utf-8")):
        (prompt,) = loader.prompts([record["row"]])
        groups.append(Group(record["row"], [Sample(prompt=prompt, **sample) for sample in record["samples"]]))
    return groups
