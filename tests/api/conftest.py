"""One tiny run, trained from Python objects alone, that the tests of the API share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api.notebook import CELL, SMALL, run_cell, scorer

import whet
from whet.config.schema.actor import LOSSES
from whet.config.schema.algorithm import ADVANTAGES


@pytest.fixture(scope="session")
def rows(quickstart: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (quickstart / "train.jsonl").read_text().splitlines()[:64]]


@pytest.fixture(scope="session")
def cell() -> Iterator[dict[str, Any]]:
    """The variables of a notebook whose cell has registered an advantage and a loss; the names are gone afterwards."""
    before = {table: dict(table._registered) for table in (ADVANTAGES, LOSSES)}
    yield run_cell(CELL)
    for table, entries in before.items():
        table._registered = entries


@pytest.fixture(scope="session")
def run(rows: list[dict[str, str]], cell: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> whet.Run:
    """Two steps of training with rows, template, reward, advantage and loss given as Python objects."""
    return whet.train(
        "whet/quickstart",
        rows,
        scorer(2.0),
        val_data=rows[:8],
        advantage="about_mean",
        loss="plain",
        steps=2,
        save_freq=1,
        output=tmp_path_factory.mktemp("api") / "run",
        **SMALL,
    )
