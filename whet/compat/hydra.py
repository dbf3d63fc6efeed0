"""Hydra's command line: `key=value`, `+key=value`, `++key=value`, `~key`, values, `--config-path`, `--config-name`.

A small parser of the part of Hydra's override grammar that commands use. What Hydra refuses is a `HydraSyntaxError`, so
that a report can say that the original refuses the command too; sweeps are refused, as they are there without
`--multirun`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
_FLOAT = re.compile(
    r"[+-]?(([0-9]+(_[0-9]+)*\.[0-9]*(_[0-9]+)*|\.[0-9]+(_[0-9]+)*)([eE][+-]?[0-9]+)?|[0-9]+(_[0-9]+)*[eE][+-]?[0-9]+"
    r"|[iI][nN][fF]|[nN][aA][nN])"
)
_KEY = re.compile(r"[\w.$/@:-]+")
_PLAIN = re.compile(r"[\w/\-\\+.$%*@?|: \t]")  # characters of a value without quotes
_FUNCTIONS = re.compile(r"(choice|range|interval|glob|shuffle|sort|tag|extend_list)\(")
_CASTS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": lambda value: str(value).lower() == "true",
}
_OPTIONS = {
    "--config-path": "path",
    "-cp": "path",
    "--config-name": "name",
    "-cn": "name",
    "--config-dir": "folder",
    "-cd": "folder",
}


class HydraSyntaxError(ValueError):
    """An argument that Hydra does not read."""


@dataclass(frozen=True)
class Override:
    """One argument of the command line."""

    key: str
    value: Any
    mode: str = ""  # "", "+", "++" or "~"
    written: str = ""


@dataclass
class CommandLine:
    """Arguments of a Hydra command, and what Hydra would refuse about them."""

    overrides: list[Override] = field(default_factory=list)
    path: str | None = None  # --config-path
    name: str | None = None  # --config-name
    folder: str | None = None  # --config-dir
    refused: list[str] = field(default_factory=list)
    multirun: bool = False


def read_command_line(arguments: list[str]) -> CommandLine:
    """Read the arguments after the module's name; every one that Hydra refuses becomes a sentence."""
    line = CommandLine()
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name in _OPTIONS:
            setattr(line, _OPTIONS[name], value if equals else next(waiting, ""))
        elif argument in ("--multirun", "-m"):
            line.multirun = True
        elif argument.startswith("--"):
            line.refused.append(f"{argument}: no option of Hydra's that is known here")
        else:
            try:
                line.overrides.append(read_override(argument))
            except HydraSyntaxError as problem:
                line.refused.append(str(problem))
    if line.multirun:
        line.refused = [reason for reason in line.refused if "--multirun" not in reason]
    return line


def read_override(argument: str) -> Override:
    """Read one `key=value` argument in any of its forms."""
    mode = re.match(r"\+{0,2}|~", argument)
    mark = mode[0] if mode and mode[0] else ("~" if argument.startswith("~") else "")
    key, equals, text = argument[len(mark) :].partition("=")
    if not _KEY.fullmatch(key):
        raise HydraSyntaxError(f"{argument!r}: expected key=value")
    if not equals:
        if mark != "~":
            raise HydraSyntaxError(f"{argument!r}: expected key=value")
        return Override(key, None, mark, argument)
    try:
        value = read_value(text)
    except HydraSyntaxError as problem:
        raise HydraSyntaxError(f"{argument}: {problem}") from None
    return Override(key, value, mark, argument)


def read_value(text: str) -> Any:
    """Return the value that Hydra reads in a text."""
    reader = _Reader(text)
    if not text:
        return ""
    value = reader.element(top=True)
    reader.blanks()
    if reader.rest.startswith(","):
        raise HydraSyntaxError("several values are a sweep, which needs --multirun; put the text in quotes or brackets")
    if reader.rest:
        raise HydraSyntaxError(f"Hydra does not read {reader.rest[0]!r} in a value without quotes")
    return value


class _Reader:
    """Recursive descent over one value."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    @property
    def rest(self) -> str:
        return self.text[self.at :]

    def blanks(self) -> None:
        while self.rest[:1] in (" ", "\t") and self.rest:
            self.at += 1

    def element(self, top: bool = False) -> Any:
        self.blanks()
        first = self.rest[:1]
        if first == "[":
            return self._items("]", self.element)
        if first == "{":
            return dict(self._items("}", self._pair))
        if first in ("'", '"') and first:
            return self._quoted(first)
        if cast := re.match(r"(int|float|str|bool)\(", self.rest):
            return self._cast(cast[1])
        if _FUNCTIONS.match(self.rest):
            raise HydraSyntaxError("functions of sweeps need --multirun")
        return self._primitive(top)

    def _items(self, end: str, item: Any) -> list[Any]:
        self.at += 1
        made: list[Any] = []
        self.blanks()
        if self.rest.startswith(end):
            self.at += 1
            return made
        while True:
            made.append(item())
            self.blanks()
            mark = self.rest[:1]
            self.at += 1
            if mark == end:
                return made
            if mark != ",":
                raise HydraSyntaxError(f"expected , or {end} in a list or mapping, and found {mark or 'its end'!r}")

    def _pair(self) -> tuple[str, Any]:
        self.blanks()
        found = re.match(r"[^\s:,{}\[\]'\"=]+", self.rest)
        if not found:
            raise HydraSyntaxError("a key of a mapping is a word without quotes")
        self.at += found.end()
        self.blanks()
        if not self.rest.startswith(":"):
            raise HydraSyntaxError("expected a colon after a key of a mapping")
        self.at += 1
        return found[0], self.element()

    def _quoted(self, mark: str) -> str:
        found = re.match(rf"{mark}((?:[^{mark}\\]|\\.)*){mark}", self.rest, re.DOTALL)
        if not found:
            raise HydraSyntaxError(f"a quote {mark} is not closed")
        self.at += found.end()
        return re.sub(rf"\\({re.escape(mark)}|\\)", r"\1", found[1])

    def _cast(self, name: str) -> Any:
        self.at += len(name) + 1
        value = self.element()
        self.blanks()
        if not self.rest.startswith(")"):
            raise HydraSyntaxError(f"{name}( is not closed")
        self.at += 1
        try:
            return _CASTS[name](value)
        except (TypeError, ValueError):
            raise HydraSyntaxError(f"{name}({value}) has no value") from None

    def _primitive(self, top: bool) -> Any:
        made, plain = "", True
        while self.rest:
            mark = self.rest[0]
            if self.rest.startswith("${"):
                made += self._interpolation()
                plain = False
            elif mark == "\\" and self.rest[1:2] and self.rest[1] in "\\()[]{}:=, \t":
                made += self.rest[1]
                self.at += 2
                plain = False
            elif _PLAIN.match(mark):
                made += mark
                self.at += 1
            else:
                break
        made = made.strip(" \t")
        if not made and plain:
            raise HydraSyntaxError(
                "a value is missing" if not top or not self.rest else f"Hydra does not read {self.rest[0]!r} here"
            )
        return _typed(made) if plain else made

    def _interpolation(self) -> str:
        depth = 0
        for length, mark in enumerate(self.rest):
            depth += (mark == "{") - (mark == "}")
            if mark == "}" and depth == 0:
                found = self.rest[: length + 1]
                self.at += length + 1
                return found
        raise HydraSyntaxError("an interpolation ${ is not closed")


def _typed(text: str) -> Any:
    lowered = text.lower()
    if lowered == "null":
        return None
    if lowered in ("true", "false"):
        return lowered == "true"
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text
