"""Predictions against the measured runs that the package keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.planning.machines import GPUS
from whet.planning.measured import MEASURED, Compared, compare, worst
from whet.planning.report import measured_table

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows() -> list[Compared]:
    return compare()


def test_memory_is_within_a_tenth(rows: list[Compared]) -> None:
    assert worst(rows, of_memory=True) < 0.10


def test_time_is_within_a_quarter(rows: list[Compared]) -> None:
    assert worst(rows, of_memory=False) < 0.25


def test_each_figure_has_a_page_that_has_it(rows: list[Compared]) -> None:
    assert len(rows) == sum(len(run.figures) for run in MEASURED)
    for row in rows:
        assert f"{row.measured:g}" in (ROOT / row.source).read_text(), row


def test_the_guide_has_the_table_as_it_is() -> None:
    assert measured_table() in (ROOT / "docs" / "plan.md").read_text()


def test_measured_machines_and_sizes_are_covered() -> None:
    assert {(run.model, run.machine) for run in MEASURED} >= {
        ("SmolLM2-135M", "H200-141G"),
        ("Qwen3-1.7B", "H200-141G"),
        ("Qwen2.5-7B", "H200-141G"),
        ("whet/quickstart", "cpu"),
        ("SmolLM2-135M", "cpu"),
    }
    assert [name for name, gpu in GPUS.items() if gpu.measured] == ["H200-141G"]
