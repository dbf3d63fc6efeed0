"""Tokens of a sample with the numbers of its token record, where there is one that can be read and fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board.conftest import HOSTILE, sample

from whet.tracking.token_records import TokenFiles, TokenRecord


@pytest.fixture
def recorded(run: Path) -> Path:
    """The hostile run with token records of rows 2 and 4 of its first step."""
    texts = list(HOSTILE.values())
    numbers = [0.1, 0.2, float("nan"), 0.4, 0.5, 0.6]
    records = [TokenRecord(row, sample(row, texts[row]), numbers, numbers, numbers, numbers) for row in (2, 4)]
    TokenFiles(run / "tokens", 10**9).write(1, records)
    return run


def test_numbers_of_each_token(recorded: Path, ask: Callable[..., Any]) -> None:
    tokens = ask("sample", step=1, row=4)["tokens"]
    assert tokens["ids"] == [1, 2, 3, 4, 5, 6]
    assert tokens["by_model"] == [True, True, True, False, False, True]
    assert tokens["log_probs"] == pytest.approx([-0.1, -2.0, -5.0, None, None, -1.0])
    for name in ("old", "new", "entropies", "advantages"):
        assert tokens[name] == pytest.approx([0.1, 0.2, None, None, None, 0.6])
    assert tokens["versions"] == [0, 0, 0, None, None, 0]
    assert "entropies" not in ask("sample", step=1, row=0)["tokens"]  # of no recorded group


def test_a_record_that_is_damaged_or_of_another_sample_is_left_out(recorded: Path, ask: Callable[..., Any]) -> None:
    short = sample(4, "x")
    short.segments = short.segments[:1]
    TokenFiles(recorded / "tokens", 10**9).write(1, [TokenRecord(4, short, [0.0] * 3, [0.0] * 3, None, None)])
    assert "entropies" not in ask("sample", step=1, row=4)["tokens"]
    (recorded / "tokens" / "train_000001.parquet").write_bytes(b"PAR1 damaged")
    tokens = ask("sample", step=1, row=4)["tokens"]
    assert tokens["ids"] == [1, 2, 3, 4, 5, 6]
    assert ask("runs")
