"""Queries for samples: both engines give the same rows, filters hold, damaged files are left out and named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whet.board import arrow_query, duckdb_query
from whet.board.filters import Filters, Page
from whet.board.sample_files import SampleFiles
from whet.board.samples import Samples

duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: whet[board]")

QUERIES = [
    Filters(),
    Filters(step=3),
    Filters(step=99),
    Filters(text="aNSWER: 4"),
    Filters(text="<SCRIPT>"),
    Filters(text="100%_"),
    Filters(uid="train.jsonl:1"),
    Filters(min_reward=2.0, max_reward=4.0),
    Filters(min_length=6, max_length=6),
    Filters(min_length=7),
]
PAGES = [
    Page(),
    Page("reward", True, 3, 5),
    Page("reward", False),
    Page("advantage", True),
    Page("length", False, 40, 20),
    Page("step", True, 1000),
]


@pytest.mark.parametrize("page", PAGES, ids=str)
@pytest.mark.parametrize("filters", QUERIES, ids=str)
def test_duckdb_and_pyarrow_agree(run: Path, filters: Filters, page: Page) -> None:
    files = list(SampleFiles().list(run, "train").files.values())
    assert duckdb_query.query(files, filters, page) == arrow_query.query(files, filters, page)


@pytest.mark.parametrize("use_duckdb", [True, False])
def test_filters_and_order(run: Path, use_duckdb: bool) -> None:
    samples = Samples(use_duckdb)
    found = samples.query(run, "train", Filters(text="answer: 4"), Page("reward", True))
    assert [row["response"] for row in found["rows"]] == ["Answer: 42", "Answer: 4"]
    best = samples.query(run, "train", Filters(max_reward=38.0), Page("reward", True, 0, 2))
    assert [row["reward"] for row in best["rows"]] == [38, 37]
    assert best["total"] == 44
    assert [each["row"] for each in samples.query(run, "train", Filters(step=1), Page())["rows"]] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("use_duckdb", [True, False])
def test_samples_without_a_number_come_last(run: Path, use_duckdb: bool) -> None:
    table = pq.read_table(run / "samples" / "train_000003.parquet").slice(0, 3)
    place = table.column_names.index("reward")
    table = table.set_column(place, "reward", pa.array([None, 1.0, float("nan")], pa.float64()))
    pq.write_table(table, run / "samples" / "val_000003.parquet")
    samples = Samples(use_duckdb)
    for descending in (True, False):
        found = samples.query(run, "val", Filters(), Page("reward", descending))
        assert [row["reward"] for row in found["rows"]] == [1.0, None, None]
    assert samples.query(run, "val", Filters(min_reward=-1e9), Page())["total"] == 1


@pytest.mark.parametrize("use_duckdb", [True, False])
def test_damaged_files_are_named_and_left_out(run: Path, use_duckdb: bool) -> None:
    samples, folder = Samples(use_duckdb), run / "samples"
    pq.write_table(pa.table({"step": [4], "x": ["y"]}), folder / "train_000004.parquet")
    (folder / "train_000005.parquet").mkdir()
    whole = (folder / "train_000003.parquet").read_bytes()
    (folder / "train_000006.parquet").write_bytes(whole[:100] + b"\xff" * 3000 + whole[3100:])  # its footer is whole
    (folder / "train_000007.parquet.tmp").write_bytes(b"")
    found = samples.query(run, "train", Filters(text="Answer: 39"), Page())
    assert [row["step"] for row in found["rows"]] == [3]
    assert len(found["damaged"]) == 4
    for name, sentence in zip(("02", "04", "05", "06"), sorted(found["damaged"])):
        assert sentence.startswith(f"train_0000{name}.parquet")


def test_a_file_that_is_written_anew_is_read_anew(run: Path) -> None:
    samples, file = Samples(), run / "samples" / "train_000003.parquet"
    assert samples.steps(run, "train")["samples"] == 45
    pq.write_table(pq.read_table(file).slice(0, 7), file)
    assert samples.steps(run, "train")["samples"] == 12
    assert samples.query(run, "train", replace(Filters(), step=3), Page())["total"] == 7
    file.unlink()
    assert samples.steps(run, "train")["steps"] == [1]


@pytest.mark.parametrize("use_duckdb", [True, False])
def test_a_column_that_is_damaged_costs_its_file_alone(run: Path, use_duckdb: bool) -> None:
    file = run / "samples" / "train_000003.parquet"
    group = pq.read_metadata(file).row_group(0)
    column = next(c for i in range(group.num_columns) if (c := group.column(i)).path_in_schema == "answer")
    content = bytearray(file.read_bytes())
    content[column.data_page_offset : column.data_page_offset + column.total_compressed_size] = b"\xff" * (
        column.total_compressed_size
    )
    file.write_bytes(content)  # the footer, and what filters read, are whole
    found = Samples(use_duckdb).query(run, "train", Filters(), Page("reward", True))
    assert found["total"] == 5
    assert {row["step"] for row in found["rows"]} == {1}
    assert any(text.startswith("train_000003.parquet is damaged and left out") for text in found["damaged"])
