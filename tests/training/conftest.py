"""The quickstart's rows, cut down so that a whole run takes a second or two."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from whet_process import write_rows

TRAIN_ROWS = 10  # with 4 prompts a step, an epoch is two steps and two rows are left over
VAL_ROWS = 6


@pytest.fixture(scope="session")
def few_rows(quickstart: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Arguments that name a few training and validation rows."""
    folder = tmp_path_factory.mktemp("rows")
    files = {}
    for split, count in (("train", TRAIN_ROWS), ("test", VAL_ROWS)):
        with (quickstart / f"{split}.jsonl").open() as lines:
            files[split] = write_rows(folder / f"{split}.jsonl", [json.loads(line) for line in islice(lines, count)])
    return f"data.train_files={files['train']}", f"data.val_files={files['test']}"
