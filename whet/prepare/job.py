"""`whet data NAME`: read a data set's files, convert every row, write one file a split and a card beside them."""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whet.checkpoint.durable import write_text
from whet.config.problems import hint
from whet.data.files import Table, read_tables
from whet.data.formats import Columns
from whet.data.splits import split_files
from whet.errors import UserError
from whet.prepare.card import Part, card, has_lines, refuse_others
from whet.prepare.options import Options
from whet.prepare.registry import SETS, DataSet, Drop, Item
from whet.prepare.schemas import KEYS, SCHEMAS
from whet.prepare.writing import write_rows

KEY = "whet data --from"


@dataclass(frozen=True, slots=True)
class Converted:
    """Rows of a split in their new columns, and why others were left out."""

    rows: list[Columns]
    read: int
    dropped: Counter[str]


def prepare(options: Options, say: Callable[[str], None]) -> list[Part]:
    """Prepare a data set as the options say; returns what was written."""
    dataset = SETS.find(options.name)
    files = {split: options.output / f"{split}.{options.format}" for split in _splits(dataset, options)}
    readme, marks = options.output / "README.md", [f"# {_title(options)}"]
    if readme.exists() and not has_lines(readme, marks):  # of other data in the same folder
        readme = options.output / f"{options.name}.README.md"
    refuse_others(f"whet data {options.name} --output", readme, marks, list(files.values()))
    parts = []
    for split, path in files.items():
        tables, sources = _read(dataset, split, options)
        found = convert(dataset, split, tables, options)
        part = Part(split, path.name, sources, found.read, len(found.rows), write_rows(path, found.rows), found.dropped)
        parts.append(part)
        say(f"{path}: {part.kept} rows{_dropped(part)}")
    write_text(readme, _card(dataset, options, parts))
    say(f"card: {readme}")
    return parts


def convert(dataset: DataSet, split: str, tables: list[Table], options: Options) -> Converted:
    """Convert the rows of a split; UserError names the first row whose columns are not the hub's."""
    items: list[tuple[int, Item]] = []
    dropped: Counter[str] = Counter()
    seen: set[object] = set()
    index = 0
    for table in tables:
        for number, row in enumerate(table.rows, start=1):
            given = row if options.data_source is None else {"data_source": options.data_source} | row
            try:
                item = dataset.convert(given, split)
                if item.key is not None and item.key in seen:
                    raise Drop("duplicate")
                seen.add(item.key)
                items.append((index, item))
            except Drop as reason:
                dropped[str(reason)] += 1
            except UserError as error:
                raise UserError(f"{table.name}:{number}: {error}. The hub's columns: {dataset.columns}") from error
            index += 1
    if not items:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in dropped.most_common())
        raise UserError(f"whet data {options.name}: no row of the split {split} is usable ({reasons})")
    if options.shuffle:
        random.Random(options.seed).shuffle(items)
    if options.limit is not None and len(items) > options.limit:
        dropped[f"beyond --limit {options.limit}"] = len(items) - options.limit
        items = items[: options.limit]
    write = SCHEMAS[options.schema]
    return Converted([write(item, dataset, split, at) for at, item in items], index, dropped)


def _splits(dataset: DataSet, options: Options) -> list[str]:
    """The splits to prepare: those that were asked for, those of the file or folder, or all."""
    for split in options.splits:
        if split not in dataset.splits:
            known = tuple(dataset.splits)
            near = hint(split, known) or f"; it has {', '.join(known)}"
            raise UserError(f"whet data {options.name}: there is no split {split}{near}")
    if options.splits or options.source is None:
        return list(options.splits or dataset.splits)
    path = _path(options.source)
    there = [split for split in dataset.splits if _has(path, split)]
    if there:
        return there
    if len(dataset.splits) == 1:
        return list(dataset.splits)
    raise UserError(
        f"{KEY} {options.source}: names none of the splits {', '.join(dataset.splits)}; say which it is with --split"
    )


def _has(path: Path, split: str) -> bool:
    """True if the split's files are there: named so, not merely unnamed, as unnamed files count as training data."""
    try:
        found = split_files(path, split, KEY)
    except UserError:
        return False
    return all(split in file.stem.lower() or split in file.parent.name.lower() for file in found)


def _path(source: str) -> Path:
    path = Path(os.path.expanduser(source))
    if not path.exists():
        raise UserError(f"{KEY} {source}: there is no such file or folder")
    return path


def _read(dataset: DataSet, split: str, options: Options) -> tuple[list[Table], list[str]]:
    """The rows of a split, and what to say of where they are from."""
    if options.source is None:
        spec = dataset.splits[split]
        return read_tables(spec, f"whet data {options.name}"), [f"{spec} of the Hugging Face hub"]
    path = _path(options.source)
    files = [path] if path.is_file() else split_files(path, split, KEY)
    tables = read_tables([str(file) for file in files], KEY)
    return tables, [f"{file.name}, SHA-256 `{_digest(file)}`" for file in files]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _dropped(part: Part) -> str:
    if not part.dropped:
        return ""
    reasons = ", ".join(f"{count} × {reason}" for reason, count in part.dropped.items())
    return f" ({part.read - part.kept} of {part.read} dropped: {reasons})"


def _title(options: Options) -> str:
    return f"{options.name}, prepared by whet"


def _card(dataset: DataSet, options: Options, parts: list[Part]) -> str:
    facts = {
        "data set": f"{options.name}, {dataset.title}",
        "source": f"{dataset.home}" + (" (local files)" if options.source else ""),
        "schema": options.schema,
        "splits": ", ".join(part.name for part in parts),
        "order": f"shuffled with seed {options.seed}" if options.shuffle else "that of the source",
        "seed": str(options.seed),
    }
    train, last = parts[0].file, parts[-1].file
    use = ["data:", f"  train_files: {train}", f"  val_files: {last}"]
    use += [f"  {key.removeprefix('data.')}: {value}" for key, value in KEYS[options.schema].items()]
    if options.schema == "whet" and dataset.template:
        use.append(f"  format_prompt: {dataset.template} # of whet's examples")
    return card(_title(options), facts, parts, [dataset.note] if dataset.note else [], "\n".join(use))
