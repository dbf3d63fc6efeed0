"""Files of token records: their columns, and the size that they keep to."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from whet.tracking.token_records import TokenFiles, TokenRecord
from whet.types import Prompt, Sample, Segment


def record(row: int, tokens: int = 3) -> TokenRecord:
    ids = list(range(tokens))
    segments = [Segment(ids, True, [-0.5] * tokens, version=4), Segment([9], False)]
    sample = Sample(Prompt("train.jsonl:1", [1], "p"), segments, "stop", index=row, group=8)
    numbers = [0.25] * (tokens + 1)
    return TokenRecord(row, sample, numbers, numbers, None if row else numbers, None if row else numbers)


def test_a_row_for_each_sample_with_a_number_for_each_token(tmp_path: Path) -> None:
    TokenFiles(tmp_path / "tokens", 1_000_000).write(12, [record(0), record(1)])
    first, second = pq.read_table(tmp_path / "tokens" / "train_000012.parquet").to_pylist()
    assert (first["step"], first["row"], first["group"], first["index"]) == (12, 0, 8, 0)
    assert first["token_ids"] == [0, 1, 2, 9]
    assert first["token_mask"] == [1, 1, 1, 0]
    assert first["versions"] == [4, 4, 4, -1]
    assert first["sampler_log_probs"] == [-0.5, -0.5, -0.5, 0.0]
    assert first["entropies"] == first["advantages"] == first["new_log_probs"] == first["old_log_probs"] == [0.25] * 4
    assert second["new_log_probs"] is second["entropies"] is None


def test_files_keep_to_their_limit_and_lie_evenly_over_the_steps(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    TokenFiles(folder, 1_000_000).write(1, [record(0)])
    limit = 5 * (folder / "train_000001.parquet").stat().st_size + 100
    files = TokenFiles(folder, limit)
    for step in range(2, 42):
        files = TokenFiles(folder, limit) if step == 20 else files  # a run that was resumed
        files.write(step, [record(0)])
        assert sum(file.stat().st_size for file in folder.iterdir()) <= limit
    steps = sorted(int(file.stem.removeprefix("train_")) for file in folder.iterdir())
    assert steps[0] == 1
    assert steps[-1] == 41
    assert len(steps) == 5
    before = set(steps)
    files.write(41, [record(0)])  # a step that is redone replaces its own
    assert {int(file.stem.removeprefix("train_")) for file in folder.iterdir()} == before


@pytest.mark.parametrize("limit", [1, 10])
def test_first_and_last_stay_whatever_the_limit(tmp_path: Path, limit: int) -> None:
    files = TokenFiles(tmp_path / "tokens", limit)
    for step in (1, 2, 3):
        files.write(step, [record(0)])
    assert sorted(file.name for file in (tmp_path / "tokens").iterdir()) == [
        "train_000001.parquet",
        "train_000003.parquet",
    ]
