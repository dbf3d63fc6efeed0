from __future__ import annotations

import pytest

from whet.data.hub import read_hub
from whet.errors import UserError

datasets = pytest.importorskip("datasets", reason="needs the extra whet[hub]")

CONFIGURATIONS = """---
configs:
- config_name: {first}
  data_files:
  - {{split: train, path: a.jsonl}}
  - {{split: test, path: b.jsonl}}
- config_name: other
  data_files: b.jsonl
---
"""


@pytest.fixture
def repository(jsonl, tmp_path, monkeypatch):
    """A dataset repository with two configurations, as the library reads it from the disk, found as org/name."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    jsonl([{"n": 1, "xs": [1.5]}, {"n": 2, "xs": []}], "org/name/a.jsonl")
    jsonl([{"n": 3, "xs": []}], "org/name/b.jsonl")

    def write(first: str) -> None:
        (tmp_path / "org" / "name" / "README.md").write_text(CONFIGURATIONS.format(first=first))

    return write


def test_rows_are_plain_python(repository):
    repository("main")
    rows = read_hub("org/name@train", "data.train_files")
    assert rows == [{"n": 1, "xs": [1.5]}, {"n": 2, "xs": []}]
    assert type(rows[0]["xs"]) is list


def test_configuration_and_split(repository):
    repository("main")
    assert [row["n"] for row in read_hub("org/name:other@train", "data.train_files")] == [3]
    assert [row["n"] for row in read_hub("org/name", "data.train_files")] == [1, 2]


def test_errors_list_what_is_there(repository):
    repository("first")
    with pytest.raises(UserError, match=r"several configurations \(first, other\)\. Name one: org/name:first@train"):
        read_hub("org/name@train", "data.train_files")
    with pytest.raises(UserError, match=r"no split 'dev'\. Splits there: train, test"):
        read_hub("org/name:first@dev", "data.val_files")
    with pytest.raises(UserError, match=r"org/name could not be loaded"):
        read_hub("org/name:nothing@train", "data.val_files")
