"""Parse what a user wrote into a key's type, strictly: nothing is guessed, nothing becomes None by itself."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from whet.config.keys import Key
from whet.config.problems import hint
from whet.config.secrets import comes_from_environment, masked
from whet.config.texts import LARGEST, name_problem, nested_problem, printable
from whet.errors import UserError

INTEGER = re.compile(r"[+-]?\d+(_\d+)*")
FLOAT = re.compile(r"[+-]?(\d+(_\d+)*\.?\d*|\.\d+)([eE][+-]?\d+)?")
NULL_WORDS = ("null", "Null", "NULL", "~")
UNREADABLE = object()
TOO_LARGE = 10**40
MOST_DIGITS = 40
MOST_SHOWN = 50  # items of a list or mapping in a message
MOST_FLOAT = 1e30  # of a key that says nothing else: what float32 can still compute with
MOST_INTEGER = 2**31 - 1  # of a key that says nothing else: no count of steps, tokens or seconds needs more


@dataclass(frozen=True)
class Given:
    """A value as the user gave it: under which name, and where."""

    name: str  # as written, which may be an alias
    value: Any
    place: str = ""  # " (run.yaml, line 7)", or nothing for the command line
    written: Any = None  # before `${...}` was replaced

    def error(self, text: str) -> UserError:
        """An error about this value, which names the key, the value and the place."""
        return UserError(f"{printable(self.name)}={self.shown}{self.place}: {text}")

    @property
    def shown(self) -> str:
        """The value as it may be printed: a secret is not, and what comes from the environment as it was written."""
        value = self.written if comes_from_environment(self.written) else self.value
        return show(masked(value, self.name))


def show(value: Any) -> str:
    """A value as a user would write it in a config."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        shown = [f"{show(name)}: {show(item)}" for name, item in list(value.items())[:MOST_SHOWN]]
        return "{" + ", ".join(shown) + (", ...}" if len(value) > MOST_SHOWN else "}")
    if isinstance(value, list | tuple):
        shown = [show(item) for item in value[:MOST_SHOWN]]
        return "[" + ", ".join(shown) + (", ...]" if len(value) > MOST_SHOWN else "]")
    if value == "":
        return '""'
    if isinstance(value, int) and abs(value) > LARGEST**4:  # Python writes no integers of thousands of digits
        return f"an integer of about {int(value.bit_length() * math.log10(2))} digits"
    text = printable(str(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


def read_value(key: Key, given: Given, extended: bool = False) -> Any:
    """The given value in the key's type, within its choices and bounds; anything else is a `UserError`.

    `extended` says that the user's own files may add to the choices of keys that are open.
    """
    value = given.value
    if value is None:
        if key.optional:
            return None
        raise given.error(f"null is not a value here; expected {key.expected}")
    if key.optional and isinstance(value, str) and value.lower() in ("none", "nil"):
        raise given.error("write null for no value")
    read = READERS[key.kind](value)
    if read is UNREADABLE:
        raise given.error(f"expected {key.expected}{_advice(key, value)}")
    complaint = complaint_about(key, read, extended)
    if complaint:
        raise given.error(complaint)
    return read


def complaint_about(key: Key, value: Any, extended: bool = False) -> str | None:
    """Why a value of the right type is not allowed, or None when it is."""
    if value is None:
        return None
    unusable = nested_problem(value) or (name_problem(value) if key.kind == "str" and not key.prose else None)
    if unusable:
        return unusable
    if key.kind == "str" and not (value if key.blank else value.strip()) and key.default != "":
        return "is empty" + ("; write null for no value" if key.optional else "")
    if key.choices and not (key.open and extended):
        for item in value if key.kind == "list" else [value]:
            if item not in key.choices and not (key.files and ":" in item):
                more = f", nor a file such as {key.files}" if key.files else ""
                return f"{item} is not one of {', '.join(key.choices)}{more}{hint(item, key.choices)}"
    if key.kind in ("int", "float", "numbers", "pair"):
        for number in value if key.kind in ("numbers", "pair") else [value]:
            if isinstance(number, int) and abs(number) > (MOST_INTEGER if key.most is None else LARGEST):
                return f"is too large: at most {MOST_INTEGER if key.most is None else key.most}"
            if not math.isfinite(number):
                return "must be a finite number"
            if abs(number) > (MOST_FLOAT if key.most is None else LARGEST):
                return f"is too large: at most {MOST_FLOAT:g}"
            if number not in key.also and not _within(key, number):
                return f"must be {bounds_in_words(key)}"
    return None


def bounds_in_words(key: Key) -> str:
    """The key's bounds as part of a sentence: `at least 1, or -1`."""
    named = (("at least", key.least), ("above", key.above), ("at most", key.most), ("below", key.below))
    words = " and ".join(f"{word} {bound}" for word, bound in named if bound is not None)
    return words + "".join(f", or {value}" for value in key.also)


def _within(key: Key, number: int | float) -> bool:
    return (
        (key.least is None or number >= key.least)
        and (key.above is None or number > key.above)
        and (key.most is None or number <= key.most)
        and (key.below is None or number < key.below)
    )


def _advice(key: Key, value: Any) -> str:
    if key.kind == "int" and isinstance(value, float) and value.is_integer():
        return f"; write {int(value)}" if abs(value) <= LARGEST else ""
    if key.kind == "str" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    return ""


def _read_int(value: Any) -> Any:
    if isinstance(value, str) and INTEGER.fullmatch(value):
        if len(value) > MOST_DIGITS:  # Python reads no integers of thousands of digits
            return -TOO_LARGE if value.startswith("-") else TOO_LARGE
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else UNREADABLE


def _read_float(value: Any) -> Any:
    if isinstance(value, str):
        if value.lower().lstrip("+-.") in ("nan", "inf"):
            return float(value.lower().replace(".", ""))
        return float(value) if FLOAT.fullmatch(value) else UNREADABLE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNREADABLE
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _read_bool(value: Any) -> Any:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower(), UNREADABLE)
    return value if isinstance(value, bool) else UNREADABLE


def _read_str(value: Any) -> Any:
    return value if isinstance(value, str) else UNREADABLE


def _read_bounds(value: Any) -> Any:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else UNREADABLE


def _read_list(value: Any) -> Any:
    # One text stands for a list of one: trainer.logger=console has only one meaning.
    items = [value] if isinstance(value, str) else value
    is_list = isinstance(items, list | tuple) and all(isinstance(item, str) for item in items)
    return list(items) if is_list else UNREADABLE


def _read_table(value: Any) -> Any:
    is_table = isinstance(value, list | tuple) and all(_read_dict(item) is not UNREADABLE for item in value)
    return list(value) if is_table else UNREADABLE


def _read_numbers(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return UNREADABLE
    numbers = [_read_float(item) for item in value]
    return UNREADABLE if UNREADABLE in numbers else numbers


def _read_pair(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return UNREADABLE
    first, second = (_read_float(item) for item in value)
    return UNREADABLE if UNREADABLE in (first, second) else (first, second)


def _read_dict(value: Any) -> Any:
    is_dict = isinstance(value, dict) and all(isinstance(name, str) for name in value)
    return value if is_dict else UNREADABLE


READERS = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "str": _read_str,
    "bounds": _read_bounds,
    "list": _read_list,
    "numbers": _read_numbers,
    "table": _read_table,
    "pair": _read_pair,
    "dict": _read_dict,
}
