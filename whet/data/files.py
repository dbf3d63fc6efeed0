"""Read the rows that `data.train_files` and `data.val_files` name.

train.jsonl                 one file
data/gsm8k                  a folder of data files, read in the order of their names
data/gsm8k@test             the files of that split
openai/gsm8k@train          a dataset of the Hugging Face hub (openai/gsm8k:main@train names its configuration)
reasoning_gym:countdown@1000  rows that an environment package generates (whet/envs/generated.py)
math.parquet,code.parquet   several of these, one after the other

A file of a folder names a split with its stem (the number of the shard left out), or with a word of it:
`train.parquet`, `gsm8k_test.jsonl`, `train-00000-of-00002.parquet`. A file that names none counts as training data, as
it does on the Hugging Face hub.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from whet.config.schema.data import DataConfig
from whet.data.columns import MISSING, lookup
from whet.data.formats import KNOWN, READERS, Columns, read_file
from whet.errors import UserError

Resolve = Callable[[str], Path | str]
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(:[\w.-]+)?")
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


@dataclass(slots=True)
class Table:
    """The rows of one file, under a name that no other table of the dataset has."""

    name: str
    rows: list[Columns]


def read_rows(files: str | Sequence[str], key: str = "data.train_files", resolve: Resolve = Path) -> list[Columns]:
    """Read every row that `files` means, as dicts of plain Python values."""
    return [row for table in read_tables(files, key, resolve) for row in table.rows]


def as_tables(files: str | Sequence[str] | Sequence[Table], key: str, resolve: Resolve) -> Sequence[Table]:
    """Return tables as they are, or read them by `read_tables`."""
    tables = [each for each in files if isinstance(each, Table)]
    return tables or read_tables(cast("str | Sequence[str]", files), key, resolve)


def first_rows(tables: Sequence[Table], config: DataConfig, key: str) -> list[Table]:
    """Return tables with as many rows in all as `data.max_train_rows` or `data.max_val_rows` allows, the first ones."""
    most = config.max_val_rows if key == "data.val_files" else config.max_train_rows
    if most is None:
        return list(tables)
    kept, left = [], most
    for table in tables:
        kept.append(Table(table.name, table.rows[:left]))
        left -= len(kept[-1].rows)
    return kept


def read_tables(files: str | Sequence[str], key: str = "data.train_files", resolve: Resolve = Path) -> list[Table]:
    """Read `files` file by file; `key` is the config key to name in errors, `resolve` finds relative paths."""
    specs = _specs(files)
    if not specs:
        raise UserError(f"{key} is empty: give a data file ({KNOWN}), a folder of them, or a hub dataset.")
    sources = [source for spec in specs for source in _sources(spec, key, resolve)]
    names = _table_names(sources)
    return [Table(name, _read(source, key)) for name, source in zip(names, sources)]


def _read(source: Path | str, key: str) -> list[Columns]:
    if isinstance(source, Path):
        return read_file(source)
    if _is_generated(source):
        from whet.envs.generated import generated_rows

        return generated_rows(source, key)
    from whet.data.hub import read_hub

    return read_hub(source, key)


def _specs(files: str | Sequence[str]) -> list[str]:
    if not isinstance(files, str):
        return list(files)
    if os.path.exists(files):  # which takes names of any length
        return [files] if files else []
    return [part.strip() for part in files.split(",") if part.strip()]


def _sources(spec: str, key: str, resolve: Resolve) -> list[Path | str]:
    """The files that a spec means, or the spec itself where it names generated rows or a dataset of the hub."""
    path, split = _locate(spec, resolve)
    if path is not None:
        return list(split_files(path, split, key))
    if _is_generated(spec) or _looks_like_hub_id(spec):
        return [spec]
    raise UserError(f"{key}: there is no file or folder {spec!r}{_beside(spec)}")


def _locate(spec: str, resolve: Resolve) -> tuple[Path | None, str | None]:
    """The existing path that `spec` names, with its split; (None, split) when there is none."""
    name, at, split = spec.rpartition("@")
    if not at or os.path.exists(spec):
        name, split = spec, ""
    path = Path(resolve(os.path.expanduser(name)))
    return (path if os.path.exists(path) else None), split or None


def _looks_like_hub_id(spec: str) -> bool:
    name = spec.partition("@")[0]
    return HUB_ID.fullmatch(name) is not None and Path(name).suffix.lower() not in READERS


def _beside(spec: str) -> str:
    """List the folder of a missing file, since most missing files are misspelt."""
    folder = Path(os.path.expanduser(spec.partition("@")[0])).parent
    try:
        names = sorted(name for name in os.listdir(folder) if Path(name).suffix.lower() in READERS)
    except (OSError, ValueError):  # no such folder, or none that may be read
        return "."
    return f". Data files in {folder}: {', '.join(names[:10])}." if names else "."


def _table_names(sources: list[Path | str]) -> list[str]:
    """File names, with their folder where two are alike, numbered where the same source is listed again."""
    names = [source.name if isinstance(source, Path) else source for source in sources]
    if len(set(names)) < len(names):
        names = [f"{source.parent.name}/{source.name}" if isinstance(source, Path) else source for source in sources]
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique


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


def with_answers(table: Table, name: str) -> Table:
    """Return rows with null for an answer that is missing: those that no reward function scores need none."""
    return Table(table.name, [row if lookup(row, name) is not MISSING else row | {name: None} for row in table.rows])


def _is_generated(spec: str) -> bool:
    """Return True if a spec names rows that an environment package generates: NAME:ARGUMENT@1000."""
    if ":" not in spec:
        return False
    from whet.envs.generated import is_generated

    return is_generated(spec)
