"""`Row`: what becomes of one key of another system, or of all keys that a pattern names.

The tables of the systems are lists of rows and nothing else: translation, reports, migration and the pages of
docs/coming-from read the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


class Kind(StrEnum):
    """What a key of another system is here."""

    MAPPED = "mapped"
    HARMLESS = "no effect here"
    ABSENT = "not here"


@dataclass(frozen=True)
class Row:
    """One key, or a pattern with `*` for any text, dots included."""

    key: str
    kind: Kind
    to: tuple[str, ...] = ()  # keys of whet
    says: str = ""  # how the value is translated, why it has no effect, or what to do instead
    rule: str = ""  # name of the function in compat/rules that sets `to`; none: the value goes to `to` by `value`
    value: str = "same"  # name of a conversion in compat/values.py
    given: bool = False  # only a value that the command gives is taken over: speed and memory
    neutral: tuple[Any, ...] = ()  # of an absent key: values that ask for nothing, besides its default and null
    closed: bool = False  # a pattern that stands for the keys of the system only, not for what a command adds
    when: str = ""  # of an absent key: the key that must be true for it to count

    @property
    def is_pattern(self) -> bool:
        """True if the row stands for many keys."""
        return "*" in self.key


def mapped(
    keys: str, to: str = "", says: str = "", rule: str = "", value: str = "same", given: bool = False
) -> list[Row]:
    """Return rows of keys that have a meaning here; several keys of one rule are separated by blanks."""
    return [Row(key, Kind.MAPPED, tuple(to.split()), says, rule, value, given) for key in keys.split()]


def renamed(pairs: dict[str, str], given: bool = False) -> list[Row]:
    """Return rows of keys whose value is taken over as it is."""
    return [Row(key, Kind.MAPPED, (to,), given=given) for key, to in pairs.items()]


def harmless(keys: str, says: str, closed: bool = False) -> list[Row]:
    """Return rows of keys that change nothing here."""
    return [Row(key, Kind.HARMLESS, says=says, closed=closed) for key in keys.split()]


def absent(keys: str, says: str, neutral: tuple[Any, ...] = (), when: str = "") -> list[Row]:
    """Return rows of keys whose meaning whet does not have."""
    return [Row(key, Kind.ABSENT, says=says, neutral=neutral, when=when) for key in keys.split()]


def under(prefix: str, *groups: Iterable[Row]) -> list[Row]:
    """Return rows with a prefix before their keys, and before `when`."""
    return [
        replace(row, key=f"{prefix}.{row.key}", when=f"{prefix}.{row.when}" if row.when else "")
        for group in groups
        for row in group
    ]


class Table:
    """Rows in order: the exact key first, then the first pattern that matches."""

    def __init__(self, *groups: Iterable[Row]) -> None:
        self.rows = [row for group in groups for row in group]
        self._exact = {row.key: row for row in reversed(self.rows) if not row.is_pattern}
        self._patterns = [row for row in self.rows if row.is_pattern]

    def find(self, key: str, known: bool = True) -> Row | None:
        """Return the row of a key, or None if nothing is known of it; `known` says that the system has the key."""
        if key in self._exact:
            return self._exact[key]
        fitting = (row for row in self._patterns if known or not row.closed)
        return next((row for row in fitting if fnmatchcase(key, row.key)), None)
