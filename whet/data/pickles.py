"""Rows of a pickle file, read without running any of it.

A pickle is a program for a stack machine, and Python's own reader runs it: one opcode imports any function, another
calls it. Files of rows (Skywork-OR1 writes its data so) need only the opcodes that make texts, numbers, lists and
mappings. This reader knows those and no others: there is nothing in it that imports, calls or builds an object, and a
file that asks for that is refused by the name of what it asks for.

Memory is bounded: a file makes no more objects than it has opcodes, texts lie in the file, and a value that the file
uses in many places is counted in each of them.
"""

from __future__ import annotations

import mmap
import os
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from whet.errors import UserError

DEEPEST = 50  # levels of lists and objects, as in other files
OBJECT_BYTES = 120  # that an object takes in memory, about
REPEATS = 100  # times that a value may stand in the rows, on average
SMALL = 1_000_000  # values that any file may have
_MARK = object()
# Opcodes that push their argument as it stands.
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NOTHING = frozenset({"PROTO", "FRAME"})
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
# Opcodes by which a pickle reaches a function or a class; their argument, if any, names it.
_CALLS = {
    *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX"),
    *("PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER"),
}
ADVICE = "write the rows as Parquet or JSON lines, or as a pickle of a list of dicts of plain values"


def read_pickle(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a pickle: a list of mappings, or a mapping that holds one such list."""
    if os.path.getsize(path) == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            machine = _Machine(path)
            found = machine.run(data)
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise UserError(f"{path}: not a readable pickle of rows ({_short(error)}); {ADVICE}.") from error
    yield from _rows(found, path, min(_most_objects(), REPEATS * machine.opcodes + SMALL))


class _Machine:
    """The part of pickle's stack machine that makes plain values."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self.opcodes = 0

    def run(self, data: mmap.mmap) -> Any:
        """Return the value that the file describes."""
        most = _most_objects()
        for number, (opcode, argument, _) in enumerate(pickletools.genops(cast("IO[bytes]", data))):
            if number > most:
                raise UserError(f"{self._path}: holds more than {most:,} values, more than memory has room for.")
            name = opcode.name
            if name == "STOP":
                self.opcodes = number
                return self._stack.pop()
            if name in _VALUES:
                self._stack.append(argument)
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name not in _NOTHING:
                self._step(name, argument)
        raise ValueError("it has no end")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in _PUTS:
            self._memo[argument] = stack[-1]
        elif name in _GETS:
            stack.append(self._memo[argument])
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._since_mark()
        else:
            self._collect(name, argument)

    def _collect(self, name: str, argument: Any) -> None:
        """Run an opcode that makes or fills a list, a tuple (read as a list) or a mapping."""
        stack = self._stack
        if name in ("EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append([])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "APPEND":
            item = stack.pop()
            _of(list, stack[-1]).append(item)
        elif name == "APPENDS":
            items = self._since_mark()
            _of(list, stack[-1]).extend(items)
        elif name in ("LIST", "TUPLE"):
            stack.append(self._since_mark())
        elif name in _TUPLES:
            items = [stack.pop() for _ in range(_TUPLES[name])]
            stack.append(items[::-1])
        elif name == "DICT":
            items = self._since_mark()
            stack.append(_fill({}, items))
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _fill(stack[-1], [key, value])
        elif name == "SETITEMS":
            items = self._since_mark()
            _fill(stack[-1], items)
        else:
            raise self._refused(name, argument)

    def _since_mark(self) -> list[Any]:
        items = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _refused(self, name: str, argument: Any) -> UserError:
        if name not in _CALLS:
            return UserError(f"{self._path}: the pickle has values of a kind that rows have not ({name}); {ADVICE}.")
        asked = argument if name in ("GLOBAL", "INST") else None
        if name == "STACK_GLOBAL":
            asked = " ".join(str(each) for each in self._stack[-2:])
        what = f"asks for {str(asked).replace(' ', '.')[:200]!r}" if asked else f"wants to make an object ({name})"
        return UserError(
            f"{self._path}: the pickle {what}, and only plain values are read: loading objects runs code of the file. "
            f"If you trust whoever made it, load it with its own library and {ADVICE}."
        )


def _of(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} where a {kind.__name__} must be")
    return value


def _fill(mapping: Any, items: list[Any]) -> dict[str, Any]:
    """Put keys and values, which follow each other, into a mapping."""
    found: dict[str, Any] = _of(dict, mapping)
    if len(items) % 2:
        raise ValueError("a key without its value")
    for key, value in zip(items[::2], items[1::2]):
        found[_of(str, key)] = value
    return found


def _rows(found: Any, path: Path, left: int) -> Iterator[dict[str, Any]]:
    """Rows of a value; together they may hold `left` values."""
    lists = [value for value in found.values() if type(value) is list] if type(found) is dict else []
    rows = lists[0] if len(lists) == 1 else found
    if type(rows) is not list:
        raise UserError(f"{path}: a pickle of rows is a list of mappings, this is a {type(rows).__name__}; {ADVICE}.")
    for number, row in enumerate(rows, start=1):
        if type(row) is not dict:
            kind = type(row).__name__
            raise UserError(f"{path}, row {number}: a row must be a mapping of named columns, this one is a {kind}.")
        left -= _count(row, left, f"{path}, row {number}")
        yield row


def _count(value: Any, most: int, where: str) -> int:
    """Number of values in a row, those that it holds in several places counted in each.

    A file of a kilobyte can hold a list of two lists of two lists: 2^50 values, or a list that holds itself.
    """
    counted, waiting = 0, [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        counted += 1
        if depth > DEEPEST:
            raise UserError(f"{where}: is nested more than {DEEPEST} levels deep, or holds itself.")
        if counted > most:
            raise UserError(f"{where}: repeats values of the file so often that the rows hold too many to be read.")
        if type(each) is dict:
            waiting += [(item, depth + 1) for item in each.values()]
        elif type(each) is list:
            waiting += [(item, depth + 1) for item in each]
        elif each is _MARK:
            raise UserError(f"{where}: not a readable pickle of rows (a mark where a value must be); {ADVICE}.")
    return counted


def _most_objects() -> int:
    """Objects that half of this machine's memory holds."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return memory // 2 // OBJECT_BYTES


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
