"""Read the rows that `data.train_files` and `data.val_files` name.

train.jsonl                 one file
data/gsm8k                  a folder of data files, read in the order of their names
data/gsm8k@test             the files of that split
openai/gsm8k@train          a dataset of the Hugging Face hub (openai/gsm8k:main@train names its configuration)
reasoning_gym:countdown@1000  rows that an environment package generates (whet/envs/generated.py)
math.parquet,code.parquet   several of these, one after the other

`splits.py` says which files of a folder belong to a split.
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
        if split is None and path.is_file():
            return [path]
        from whet.data.splits import split_files

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


def with_answers(table: Table, name: str) -> Table:
    """Return rows with null for an answer that is missing: those that no reward function scores need none."""
    return Table(table.name, [row if lookup(row, name) is not MISSING else row | {name: None} for row in table.rows])


def _is_generated(spec: str) -> bool:
    """Return True if a spec names rows that an environment package generates: NAME:ARGUMENT@1000."""
    if ":" not in spec:
        return False
    from whet.envs.generated import is_generated

    return is_generated(spec)
