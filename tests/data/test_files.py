from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whet.data.files import read_rows, read_tables
from whet.errors import UserError

GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"


def numbers(files, **options):
    return [row["n"] for row in read_rows(files, **options)]


def names(files):
    return [table.name for table in read_tables(files)]


def test_one_file_as_text_or_in_a_list(jsonl):
    path = jsonl([{"n": 1}, {"n": 2}])
    assert numbers(str(path)) == [1, 2]
    assert numbers([str(path)]) == [1, 2]


def test_folder_is_read_in_the_order_of_names_whatever_the_kind(jsonl, tmp_path):
    jsonl([{"n": 3}], "d/c.jsonl")
    jsonl([{"n": 1}], "d/a.jsonl")
    pq.write_table(pa.table({"n": [2]}), tmp_path / "d" / "b.parquet")
    (tmp_path / "d" / "README.md").write_text("not data")
    (tmp_path / "d" / "dataset_info.json").write_text("{}")
    assert numbers(str(tmp_path / "d")) == [1, 2, 3]
    assert names(str(tmp_path / "d")) == ["a.jsonl", "b.parquet", "c.jsonl"]


def test_several_files_separated_by_commas(jsonl):
    one, two = jsonl([{"n": 1}], "one.jsonl"), jsonl([{"n": 2}], "two.jsonl")
    assert numbers(f"{two}, {one}") == [2, 1]


def test_a_path_may_hold_a_comma_or_an_at_sign(jsonl):
    assert numbers(str(jsonl([{"n": 1}], "a,b/c.jsonl"))) == [1]
    assert numbers(str(jsonl([{"n": 2}], "me@home/c.jsonl"))) == [2]
    assert numbers(str(jsonl([{"n": 3}], "me@home/test.jsonl").parent) + "@test") == [3]


@pytest.mark.parametrize(
    ("files", "split", "expected"),
    [
        (["train.jsonl", "test.jsonl"], "test", ["test.jsonl"]),
        (["gsm8k_train.jsonl", "gsm8k_test.jsonl"], "train", ["gsm8k_train.jsonl"]),
        (["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "test-00000-of-00001.jsonl"], "train",
         ["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"]),
        (["train.jsonl", "train_sft.jsonl"], "train", ["train.jsonl"]),
        (["train.jsonl", "train_sft.jsonl"], "train_sft", ["train_sft.jsonl"]),
        (["train.jsonl", "val.jsonl"], "validation", ["val.jsonl"]),
        (["val.jsonl", "dev.jsonl"], "dev", ["dev.jsonl"]),
        (["my_train_sft.jsonl", "my_train.jsonl"], "train_sft", ["my_train_sft.jsonl"]),
        (["my_val.jsonl", "my_train.jsonl"], "validation", ["my_val.jsonl"]),
        (["part1.jsonl", "part2.jsonl", "test.jsonl"], "train", ["part1.jsonl", "part2.jsonl"]),
        (["latest.jsonl", "my-test.jsonl"], "test", ["my-test.jsonl"]),
        (["train/a.jsonl", "test/b.jsonl"], "test", ["b.jsonl"]),
        (["data/train-0-of-1.jsonl", "data/test-0-of-1.jsonl"], "test", ["test-0-of-1.jsonl"]),
    ],
)  # fmt: skip
def test_split_picks_files(jsonl, tmp_path, files, split, expected):
    for name in files:
        jsonl([{"n": 1}], f"d/{name}")
    assert names(f"{tmp_path / 'd'}@{split}") == expected


def test_split_of_a_file(jsonl):
    assert numbers(f"{jsonl([{'n': 1}], 'train.jsonl')}@train") == [1]
    assert numbers(f"{jsonl([{'n': 2}], 'math.jsonl')}@train") == [2]
    with pytest.raises(UserError, match=r"data\.val_files: .*math\.jsonl has no split 'test'"):
        read_rows(f"{jsonl([{'n': 2}], 'math.jsonl')}@test", key="data.val_files")


def test_a_folder_of_several_splits_needs_the_split(jsonl, tmp_path):
    jsonl([{"n": 1}], "d/train.jsonl")
    jsonl([{"n": 1}], "d/test.jsonl")
    with pytest.raises(UserError, match=r"several splits \(test, train\)\. .*/d@train"):
        read_rows(str(tmp_path / "d"))


def test_missing_split_lists_those_there(jsonl, tmp_path):
    jsonl([{"n": 1}], "d/train-00000-of-00002.jsonl")
    jsonl([{"n": 1}], "d/test.jsonl")
    with pytest.raises(UserError, match=r"data\.train_files: .* no split 'dev'\. Splits there: test, train\."):
        read_rows(f"{tmp_path / 'd'}@dev")


def test_folder_without_data(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "sub").mkdir()
    with pytest.raises(UserError, match=r"holds no data files .*Its folders: sub"):
        read_rows(str(tmp_path))


def test_missing_file_lists_its_neighbours(jsonl):
    path = jsonl([{"n": 1}], "train.jsonl")
    with pytest.raises(UserError, match=r"data\.train_files: there is no file .*trian\.jsonl.*train\.jsonl"):
        read_rows(str(path.parent / "trian.jsonl"))
    with pytest.raises(UserError, match=r"no file or folder 'nowhere/train\.jsonl'"):
        read_rows("nowhere/train.jsonl")


@pytest.mark.parametrize("nothing", ["", " , ", []])
def test_nothing_given(nothing):
    with pytest.raises(UserError, match=r"data\.val_files is empty"):
        read_rows(nothing, key="data.val_files")


def test_resolve_finds_names_that_are_no_paths(jsonl):
    path = jsonl([{"n": 1}], "built-in/train.jsonl")
    known = {"whet/task": path.parent}
    assert numbers("whet/task@train", resolve=lambda name: known.get(name, name)) == [1]


def test_table_names_are_unique(jsonl, tmp_path):
    a, b = jsonl([{"n": 1}], "math/train.jsonl"), jsonl([{"n": 2}], "code/train.jsonl")
    assert names(f"{a},{b}") == ["math/train.jsonl", "code/train.jsonl"]
    assert names(f"{a},{a}") == ["math/train.jsonl", "math/train.jsonl#2"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads everything")
def test_unreadable_file(jsonl):
    path = jsonl([{"n": 1}])
    path.chmod(0)
    with pytest.raises(UserError, match="cannot be read"):
        read_rows(str(path))


@pytest.mark.skipif(importlib.util.find_spec("datasets") is not None, reason="the datasets library is installed")
def test_hub_dataset_without_the_library_says_how_to_install_it():
    with pytest.raises(UserError, match=r"data\.train_files: .*'openai/gsm8k'.*pip install whet\[hub\]"):
        read_rows("openai/gsm8k@train")


@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not beside the repository")
def test_gsm8k():
    assert len(read_rows(f"{GSM8K}@train")) == 7473
    assert len(read_rows(f"{GSM8K}@test")) == 1319
