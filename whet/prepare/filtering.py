"""`whet data filter`: keep the rows whose difficulty is within a band, with the difficulty as a column."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from whet.checkpoint.durable import write_text
from whet.data.columns import MISSING, column_names, lookup
from whet.data.files import Table, read_tables
from whet.data.formats import Columns
from whet.errors import UserError
from whet.prepare.card import Part, card, refuse_others
from whet.prepare.writing import WRITERS, write_rows

KEY = "whet data filter INPUT"
_OWN = ("--n", "--keep", "--column", "--by")


class Rates(Protocol):
    """Pass rates of rows, as `whet/evals/difficulty.py` estimates them."""

    @property
    def tables(self) -> list[Table]:
        """The rows."""

    @property
    def by_uid(self) -> dict[str, float]:
        """Fraction of right samples by `table:row`, counted from 1."""

    @property
    def model(self) -> str:
        """Name of the model."""

    @property
    def samples(self) -> int:
        """Samples of each prompt."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Arguments of `whet data filter`."""

    source: str
    output: Path
    n: int = 16
    low: str = ""  # "" = above 0
    high: str = ""  # "" = below 1
    column: str = "pass_rate"
    by: str | None = None

    @property
    def journal(self) -> Path:
        """The folder that keeps answers until the output is written, and for other bands afterwards."""
        return self.output.with_name(f"{self.output.name}.samples")

    @property
    def card(self) -> Path:
        """The card's file."""
        return self.output.with_name(f"{self.output.name}.README.md")

    @property
    def title(self) -> str:
        """The card's title."""
        return f"{self.output.name}, filtered by whet"

    def eval_arguments(self) -> list[str]:
        """Arguments by which `whet eval` answers and scores the rows."""
        source = os.path.abspath(self.source) if os.path.exists(self.source) else self.source
        return [f"data.val_files={source}", "eval.datasets=[]", f"eval.n={self.n}", f"eval.output={self.journal}"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"whet data filter: {message} (whet data --help)")


def parse(arguments: Sequence[str]) -> tuple[Filter, list[str]]:
    """The options of a command line, and the arguments that say which model samples."""
    own, rest = _separate(arguments)
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--keep", default="")
    parser.add_argument("--column", default="pass_rate")
    parser.add_argument("--by")
    given = parser.parse_args(own)
    if len(rest) < 2 or any("=" in each or each.startswith("-") for each in rest[:2]):
        raise UserError("whet data filter takes two files: whet data filter INPUT OUTPUT (whet data --help)")
    source, output = rest[0], Path(rest[1]).expanduser()
    if output.suffix.lower() not in WRITERS:
        raise UserError(f"whet data filter: {output} must end in one of {', '.join(WRITERS)}")
    if os.path.exists(source) and output.exists() and os.path.samefile(source, output):
        raise UserError(f"whet data filter: {output} is the input; name another file")
    if given.n < 1:
        raise UserError(f"whet data filter: --n {given.n}: at least one sample of each prompt is needed")
    low, high = _band(given.keep)
    if given.by is None:
        _check_fractions(low, high)
    elif not given.keep:
        raise UserError(f"whet data filter --by {given.by}: say what to keep, such as --keep 1..15")
    options = Filter(source, output, given.n, low, high, given.column, given.by)
    marks = [f"# {options.title}", *(f"- rows: {each}" for each in _sources(options))]
    refuse_others("whet data filter OUTPUT", options.card, marks, [output])
    return options, rest[2:]


def keep_rows(options: Filter, rates: Rates | None, say: Callable[[str], None]) -> Part:
    """Write the rows within the band, and a card; without `rates` a column of the rows is what is compared."""
    tables = read_tables(options.source, KEY) if rates is None else rates.tables
    kept: list[Columns] = []
    dropped: Counter[str] = Counter()
    for table in tables:
        for number, row in enumerate(table.rows, start=1):
            uid = f"{table.name}:{number}"
            if rates is None:
                value: Any = _value(row, options.by or "", uid)
            elif (value := rates.by_uid.get(uid)) is not None:
                row = row | {options.column: value}
            why = _outside(value, options, uid)
            if why:
                dropped[why] += 1
            else:
                kept.append(row)
    total = sum(len(table.rows) for table in tables)
    if not kept:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in dropped.most_common())
        raise UserError(f"whet data filter: none of {total} rows is within the band ({reasons}); widen --keep")
    checksum = write_rows(options.output, kept)
    part = Part("rows", options.output.name, _sources(options), total, len(kept), checksum, dropped)
    write_text(options.card, _card(options, rates, part))
    reasons = "".join(f", {count} × {reason}" for reason, count in dropped.most_common())
    say(f"{options.output}: {len(kept)} of {total} rows{reasons}")
    say(f"card: {options.card}")
    return part


def _separate(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide options of the filter, with their values, from all other arguments."""
    own, rest, left = [], [], list(arguments)
    while left:
        word = left.pop(0)
        name, equals, _ = word.partition("=")
        if name not in _OWN:
            rest.append(word)
            continue
        own.append(word)
        if not equals and left:
            own.append(left.pop(0))
    return own, rest


def _band(text: str) -> tuple[str, str]:
    if not text:
        return "", ""
    low, dots, high = text.partition("..")
    if not dots or not (low or high):
        raise UserError(f"whet data filter: --keep {text}: write the ends of a band, such as 0.1..0.9 or 1..15")
    return low.strip(), high.strip()


def _check_fractions(low: str, high: str) -> None:
    for end in (low, high):
        if end and not (_is_number(end) and 0 <= float(end) <= 1):
            raise UserError(f"whet data filter: --keep {low}..{high}: {end} is no fraction from 0 to 1")
    if low and high and float(low) > float(high):
        raise UserError(f"whet data filter: --keep {low}..{high}: nothing lies between these ends")


def _value(row: Columns, name: str, uid: str) -> Any:
    value = lookup(row, name)
    if value is MISSING:
        names = ", ".join(column_names(row))
        raise UserError(f"whet data filter --by {name}: {uid} has no such column; its columns: {names}")
    return value


def _outside(value: Any, options: Filter, uid: str) -> str:
    """Why a row is left out; empty for one that stays."""
    if value is None:
        return "without a value" if options.by else "too long to be asked, or never scored"
    low, high = options.low, options.high
    if options.by is None and not (low or high):
        return "always wrong" if value == 0 else "always right" if value == 1 else ""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UserError(f"whet data filter --by {options.by}: {uid} holds {type(value).__name__}, no number or text")
    if isinstance(value, str):
        below, above = bool(low) and value < low, bool(high) and value > high
    else:
        for end in (low, high):
            if end and not _is_number(end):
                raise UserError(f"whet data filter --by {options.by}: {uid} holds a number, and {end} is none")
        below, above = bool(low) and value < float(low), bool(high) and value > float(high)
    return f"below {low}" if below else f"above {high}" if above else ""


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text) is not None


def _sources(options: Filter) -> list[str]:
    path = Path(os.path.expanduser(options.source))
    if not path.is_file():
        return [options.source]
    with path.open("rb") as file:
        return [f"{path.name}, SHA-256 `{hashlib.file_digest(file, 'sha256').hexdigest()}`"]


def _card(options: Filter, rates: Rates | None, part: Part) -> str:
    band = f"{options.low or 'any'} to {options.high or 'any'}, both included"
    if options.by is None and not (options.low or options.high):
        band = "neither always right nor always wrong"
    facts = {"kept": f"{options.by or options.column} {band}"}
    if rates is not None:
        facts |= {"model": rates.model, "samples of a prompt": str(rates.samples), "column": options.column}
    return card(options.title, facts, [part], [], f"data:\n  train_files: {part.file}")
