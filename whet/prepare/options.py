"""Arguments of `whet data`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from whet.errors import UserError
from whet.prepare.schemas import SCHEMAS
from whet.prepare.writing import WRITERS


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"whet data: {message} (whet data --help)")


@dataclass(frozen=True, slots=True)
class Options:
    """A data set's name, where it is, and what becomes of it."""

    name: str
    output: Path
    source: str | None = None  # file or folder; None = the hub
    splits: tuple[str, ...] = ()  # () = all of the data set's
    schema: str = "whet"
    format: str = "parquet"
    limit: int | None = None  # rows of each split
    shuffle: bool = False
    seed: int = 0
    data_source: str | None = None  # of rows that have none


def parse(name: str, arguments: Sequence[str]) -> Options:
    """Options of a command line; UserError where they make no sense."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--from", dest="source")
    parser.add_argument("--split", action="append", default=[])
    parser.add_argument("--output")
    parser.add_argument("--schema", default="whet", choices=tuple(SCHEMAS))
    parser.add_argument("--format", default="parquet", choices=tuple(ending[1:] for ending in WRITERS))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-source")
    given = parser.parse_args(list(arguments))
    if given.limit is not None and given.limit < 1:
        raise UserError(f"whet data: --limit {given.limit}: keep at least one row of a split")
    if given.seed < 0:
        raise UserError(f"whet data: --seed {given.seed}: a seed is 0 or more")
    splits = tuple(each.strip() for some in given.split for each in some.split(",") if each.strip())
    output = Path(given.output or Path("data") / name).expanduser()
    return Options(
        name,
        output,
        given.source,
        splits,
        given.schema,
        given.format,
        given.limit,
        given.shuffle,
        given.seed,
        given.data_source,
    )
