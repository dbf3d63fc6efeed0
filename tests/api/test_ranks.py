"""Functions that a notebook has registered reach the ranks of a run on several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api.notebook import SMALL, scorer

import whet


@pytest.mark.slow
def test_ranks_use_the_functions_of_the_notebook(cell: dict[str, Any], rows: list[dict], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    settings = {**SMALL, "steps": 2, "advantage": "about_mean", "loss": "plain", "device": "cpu"}
    one = whet.train("whet/quickstart", rows, scorer(1.0), output=tmp_path / "one", **settings)
    two = whet.train("whet/quickstart", rows, scorer(1.0), output=tmp_path / "two", devices=2, **settings)
    for name in ("reward/overall", "actor/pg_loss"):
        assert two.metrics[name] == pytest.approx(one.metrics[name], abs=1e-4)
