"""The index of samples in memory: the same answers as from the files, kept up to date, within its memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from board.conftest import sample

from whet.board import sample_index
from whet.board.filters import Filters, Page
from whet.board.samples import Samples
from whet.tracking.run_folder import write_samples

QUERIES: list[tuple[Filters, Page]] = [
    (Filters(), Page("step", True, 3, 7)),
    (Filters(min_reward=3.0, max_reward=20.0), Page("reward", True)),
    (Filters(text="ANSWER: 3"), Page("length")),
    (Filters(text="prompt <i>1"), Page("advantage", True, 0, 100)),
    (Filters(uid="train.jsonl:5"), Page()),
    (Filters(version=0, max_length=5), Page()),
    (Filters(), Page("step", False, 10_000, 5)),
]


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.setattr(sample_index, "_LEAST_ROWS", 10)
    monkeypatch.setattr(sample_index, "_SMALL_CHUNKS", 2)


def write(folder: Path, step: int, count: int = 8) -> None:
    samples = [sample(i + step, f"Answer: {i}", f"train.jsonl:{i}") for i in range(count)]
    write_samples(folder / "samples" / f"train_{step:06d}.parquet", step, samples, False)


def ready(samples: Samples, folder: Path) -> None:
    """Wait until the index of a run is built."""
    end = time.monotonic() + 60
    while True:
        files = list(samples._files.list(folder, "train").files.values())
        found = [index.find(folder, "train", files) for index in (samples._numbers, samples._texts)]
        if None not in found:
            return
        assert time.monotonic() < end
        time.sleep(0.01)


def test_answers_are_those_of_the_files(indexed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 8):
        write(tmp_path, step)
    fast, plain = Samples(), Samples(use_duckdb=False)
    ready(fast, tmp_path)
    used: list[Any] = []
    query_index = __import__("whet.board.duckdb_query", fromlist=["x"]).query_index
    monkeypatch.setattr("whet.board.duckdb_query.query_index", lambda *a: used.append(a) or query_index(*a))
    for filters, page in QUERIES:
        assert fast.query(tmp_path, "train", filters, page) == plain.query(tmp_path, "train", filters, page)
    assert len(used) == len(QUERIES)


def test_files_that_come_change_or_are_damaged(indexed: None, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path, step)
    samples = Samples()
    ready(samples, tmp_path)
    write(tmp_path, 4)
    assert samples.query(tmp_path, "train", Filters(), Page())["total"] == 32  # from the files, while it is extended
    ready(samples, tmp_path)
    assert samples.query(tmp_path, "train", Filters(), Page())["total"] == 32
    write(tmp_path, 2, 5)  # a step that was redone
    ready(samples, tmp_path)
    assert samples.query(tmp_path, "train", Filters(), Page())["total"] == 29
    (tmp_path / "samples" / "train_000005.parquet").write_bytes(b"PAR1 damaged")
    found = samples.query(tmp_path, "train", Filters(), Page())
    assert found["total"] == 29
    assert "train_000005.parquet is damaged" in found["damaged"][0]


def test_texts_that_are_too_many_are_searched_in_files(
    indexed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_index, "MOST_TEXT", 500)
    for step in range(1, 6):
        write(tmp_path, step)
    samples = Samples()
    ready(samples, tmp_path)
    files = list(samples._files.list(tmp_path, "train").files.values())
    index = samples._texts.find(tmp_path, "train", files)
    assert index is not None
    assert not index.has_texts
    assert samples.query(tmp_path, "train", Filters(text="answer: 3"), Page())["total"] == 5
    assert samples.query(tmp_path, "train", Filters(min_reward=4.0), Page())["total"] == 34
