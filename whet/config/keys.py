"""Config keys: type, default, one line of help, and allowed values.

The dataclasses of `schema/` declare their fields through `key(...)`, `about(...)` and `section(...)`; `keys_of` and
`sections_of` read them back as dotted names. Nothing else looks into the dataclasses.
"""

from __future__ import annotations

import copy
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Annotated, Any, Literal, TypeVar, cast

Number = int | float
_Section = TypeVar("_Section")
LARGEST_SEED = 2**63 - 1
Choices = tuple[str, ...] | Callable[[], tuple[str, ...]]  # what a registry holds is listed when it is asked for
Kind = Literal["int", "float", "bool", "str", "bounds", "list", "numbers", "table", "pair", "dict"]
# A number, or two joined by an underscore; kept as written, because YAML would read 0.5_2 as 0.52.
Bounds = Annotated[str, "bounds"]

KINDS: dict[Any, Kind] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "str",
    Bounds: "bounds",
    list[str]: "list",
    list[float]: "numbers",
    list[dict[str, Any]]: "table",
    tuple[float, float]: "pair",
    dict[str, Any]: "dict",
}
KIND_WORDS: dict[Kind, str] = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "bounds": "a number, or two such as 0.5_2.0",
    "list": "a list such as [a, b]",
    "numbers": "a list of numbers such as [0.5, 1]",
    "table": "a list of mappings such as [{name: value}, {name: value}]",
    "pair": "two numbers such as [0.9, 0.999]",
    "dict": "a mapping such as {name: value}",
}


@dataclass(frozen=True)
class Key:
    """One setting, as the loader, the checks and the reference page see it."""

    name: str  # dotted: "data.max_prompt_length"
    kind: Kind
    optional: bool  # null is a value
    default: Any
    help: str
    choices_of: Choices = ()
    open: bool = False  # files of algorithm.extensions may add to the choices
    files: str = ""  # an example of `path.py:NAME`, where that is a value too
    least: Number | None = None
    most: Number | None = None
    above: Number | None = None
    below: Number | None = None
    prose: bool = False  # a text of several lines rather than a name, path or address
    also: tuple[Number, ...] = ()  # values outside the bounds that have a meaning of their own, such as -1
    blank: bool = False  # a text of blanks is a value

    @property
    def choices(self) -> tuple[str, ...]:
        """The values it may take; () if they are not listed."""
        return self.choices_of() if callable(self.choices_of) else self.choices_of

    @property
    def type_name(self) -> str:
        """The type as a reader of the reference writes it."""
        word = {"bounds": "number or l_u", "list": "list[str]", "table": "list[dict]", "pair": "[float, float]"}.get(
            self.kind, self.kind
        )
        return f"{word} or null" if self.optional else word

    @property
    def expected(self) -> str:
        """The type in words, for error messages."""
        return KIND_WORDS[self.kind] + (" or null" if self.optional else "")


def about(help: str, choices: Choices = (), open: bool = False, files: str = "") -> dict[str, Any]:
    """The metadata that makes a dataclass field a config key."""
    return {"help": help, "choices_of": choices, "open": open, "files": files}


def key(
    default: Any,
    help: str,
    *,
    choices: Choices = (),
    open: bool = False,
    files: str = "",
    least: Number | None = None,
    most: Number | None = None,
    above: Number | None = None,
    below: Number | None = None,
    also: tuple[Number, ...] = (),
    prose: bool = False,
    blank: bool = False,
) -> Any:
    """Declare a config key with an immutable default and the bounds of its value."""
    bounds = {"least": least, "most": most, "above": above, "below": below, "also": also}
    texts = {"prose": prose, "blank": blank}
    return field(default=default, metadata={**about(help, choices, open, files), **bounds, **texts})


def section(help: str, presets: Mapping[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """The metadata that makes a dataclass field a branch of the config tree.

    A branch with presets has a key `preset`; one value given to the whole branch names it.
    """
    return {"section": help, "presets": presets}


def key_of(name: str, declared: Field, hint: Any) -> Key:
    """The `Key` that a dataclass field declares."""
    parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
    optional = typing.get_origin(hint) in (types.UnionType, typing.Union)
    make = declared.default_factory
    default = declared.default if make is MISSING else make()
    return Key(name, KINDS[parts[0] if optional else hint], optional, default, **declared.metadata)


def walk(cls: type, prefix: str = "") -> Iterator[tuple[str, Key | Field]]:
    """Every section (as its field) and every key below a dataclass, in the order they are written."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for declared in fields(cls):
        name = f"{prefix}{declared.name}"
        if "section" in declared.metadata:
            yield name, declared
            yield from walk(hints[declared.name], f"{name}.")
        elif "help" in declared.metadata:
            yield name, key_of(name, declared, hints[declared.name])


@functools.cache
def keys_of(cls: type) -> dict[str, Key]:
    """Every key below a dataclass by its dotted name."""
    return {name: found for name, found in walk(cls) if isinstance(found, Key)}


@functools.cache
def sections_of(cls: type) -> dict[str, str]:
    """Every section below a dataclass, with its line of help."""
    return {name: found.metadata["section"] for name, found in walk(cls) if isinstance(found, Field)}


@functools.cache
def presets_of(cls: type) -> dict[str, Mapping[str, dict[str, Any]]]:
    """Every section below a dataclass that has presets, with them."""
    branches = {name: found.metadata["presets"] for name, found in walk(cls) if isinstance(found, Field)}
    return {name: presets for name, presets in branches.items() if presets}


def get(config: Any, name: str) -> Any:
    """Return the value of a dotted key."""
    return functools.reduce(getattr, name.split("."), config)


def with_values(config: _Section, values: Mapping[str, Any]) -> _Section:
    """Return a copy of a config, or of one of its sections, with other values for some dotted keys.

    Sections without any of the keys are shared with the original. A name below a key that is a mapping sets that entry.
    """
    own: dict[str, Any] = {}
    below: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        if rest:
            below.setdefault(head, {})[rest] = value
        else:
            own[head] = value
    if isinstance(config, dict):
        return cast(_Section, config | own | {head: with_values(config.get(head, {}), below[head]) for head in below})
    unknown = (own.keys() | below.keys()) - {declared.name for declared in fields(cast(Any, config))}
    if unknown:
        raise AttributeError(f"{type(config).__name__} has no key {min(unknown)}")
    made = copy.copy(config)  # sections are frozen, so a copy is changed before anybody sees it
    made.__dict__.update(own | {head: with_values(getattr(config, head), below[head]) for head in below})
    return made
