"""Data files of a folder, and the splits that their names say.

A file of a folder names a split with its stem (the number of the shard left out), or with a word of it:
`train.parquet`, `gsm8k_test.jsonl`, `train-00000-of-00002.parquet`. A file that names none counts as training data, as
it does on the Hugging Face hub.
"""

from __future__ import annotations

import re
from pathlib import Path

from whet.data.formats import KNOWN, READERS
from whet.errors import UserError

SHARD = re.compile(r"[-_.]\d+-of-\d+$")
SYNONYMS = {
    "training": "train",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}
SPLITS = {"train", *SYNONYMS.values()}
# What `save_to_disk` of the datasets library and hub repositories keep beside the data.
NOT_DATA = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}


def split_files(path: Path, split: str | None, key: str) -> list[Path]:
    """The data files that `path@split` means, sorted by name; `path` is a file or a folder."""
    if path.is_file():
        return _of_file(path, split, key)
    if not path.is_dir():
        raise UserError(f"{key}: {path} is neither a file nor a folder. Write the data to a file.")
    try:
        return _in_folder(path, split, key)
    except OSError as error:
        raise UserError(f"{key}: the folder {path} cannot be read ({error.strerror}).") from error


def _in_folder(path: Path, split: str | None, key: str) -> list[Path]:
    if split and (path / split).is_dir():
        return split_files(path / split, None, key)
    files = _data_files(path)
    if not files and (path / "data").is_dir():
        return split_files(path / "data", split, key)
    if not files:
        folders = sorted(item.name for item in path.iterdir() if item.is_dir())
        inside = f" Its folders: {', '.join(folders)}." if folders else ""
        raise UserError(f"{key}: the folder {path} holds no data files ({KNOWN}).{inside}")
    return _of_folder(path, files, split, key)


def _of_file(path: Path, split: str | None, key: str) -> list[Path]:
    if split and not _pick([path], split):
        raise UserError(f"{key}: {path} has no split {split!r}. Write the file's path without @{split} to read it.")
    return [path]


def _of_folder(path: Path, files: list[Path], split: str | None, key: str) -> list[Path]:
    if split:
        picked = _pick(files, split)
        if not picked:
            there = ", ".join(sorted({_stem(file) for file in files}))
            raise UserError(f"{key}: {path} has no split {split!r}. Splits there: {there}.")
        return picked
    # Reading train.jsonl and test.jsonl as one would train on the test set.
    named = sorted({word for file in files for word in _words(file) & SPLITS})
    if len(named) > 1:
        raise UserError(
            f"{key}: {path} holds several splits ({', '.join(named)}). Say which one to read: {path}@{named[-1]}"
        )
    return files


def _data_files(folder: Path) -> list[Path]:
    return sorted(
        item
        for item in folder.iterdir()
        if item.is_file()
        and item.suffix.lower() in READERS
        and item.name not in NOT_DATA
        and not item.name.startswith(".")
    )


def _pick(files: list[Path], split: str) -> list[Path]:
    """Files called as the split is; else by another name of it; else with it as a part of the name.

    For train, when none is any of these, the files that name no split at all.
    """
    spelt = split.lower()
    meant = SYNONYMS.get(spelt, spelt)
    part = re.compile(rf"(?<![a-z0-9]){re.escape(spelt)}(?![a-z0-9])")
    choices = (
        [file for file in files if _stem(file) == spelt],
        [file for file in files if SYNONYMS.get(_stem(file), _stem(file)) == meant],
        [file for file in files if part.search(_stem(file))],
        [file for file in files if meant in _words(file)],
        [file for file in files if meant == "train" and not _words(file) & SPLITS],
    )
    return next((picked for picked in choices if picked), [])


def _stem(file: Path) -> str:
    return SHARD.sub("", file.stem).lower()


def _words(file: Path) -> set[str]:
    return {SYNONYMS.get(word, word) for word in re.split(r"[^a-z0-9]+", _stem(file))}
