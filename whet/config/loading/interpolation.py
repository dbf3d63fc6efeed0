"""Replace `${...}` in values, once it is known that what they refer to can be followed.

OmegaConf follows references by recursion and replaces each of them anew, so that a few lines that name each other twice
can take hours. Here references are followed within a budget that is shared by all keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from whet.config.texts import printable
from whet.config.values import Given
from whet.errors import UserError

MOST_REFERENCES = 20_000  # followed for the whole config, which takes OmegaConf about a second
MOST_CHARACTERS = 4_000_000
DEEPEST_CHAIN = 20
DEEPEST_BRACKETS = 20
LONGEST = 100_000
Path = tuple[Any, ...]  # to a value in the tree: names and indices
OPENED = re.compile(r"\$\{[^{}]*")
UNSET = re.compile(r"Environment variable '(.+?)' not found")
NAMES = re.compile(r"[.\w\[\]\"'-]+")
# Of a name that is made of other values it is not known beforehand where it leads; these resolvers take texts.
TAKES_VALUES = re.compile(r"\$\{\s*oc\.(env|decode|create)\s*:[^{}]*")


def syntax_problem(value: Any) -> str | None:
    """Why the interpolations in a value, or in what it holds, cannot be read, or None."""
    if isinstance(value, dict):
        found = (syntax_problem(item) for pair in value.items() for item in pair)
        return next((each for each in found if each), None)
    if isinstance(value, list | tuple):
        return next((each for each in map(syntax_problem, value) if each), None)
    if not isinstance(value, str) or "${" not in value:
        return None
    if len(value) > LONGEST:
        return f"holds ${{...}} and has more than {LONGEST:,} characters; shorten it"
    depth = deepest = 0
    for character in value:
        depth += (character in "[{(") - (character in "]})")
        deepest = max(deepest, depth)
    if deepest > DEEPEST_BRACKETS:
        return f"has brackets nested more than {DEEPEST_BRACKETS} deep in ${{...}}; write it out"
    for opened in OPENED.finditer(value):
        if value.startswith("${", opened.end()) and not TAKES_VALUES.fullmatch(opened[0]):
            return f"has a name made of another value in {printable(opened[0])[:60]}${{...; write the name out"
    return None


def check_interpolations(given: Given) -> None:
    """Raise a `UserError` for a value that OmegaConf cannot read."""
    problem = syntax_problem(given.value)
    if problem:
        raise given.error(problem)
    try:
        OmegaConf.create([given.value])
    except (OmegaConfBaseException, ValueError) as error:
        raise given.error(f"cannot be read: {printable(str(error).splitlines()[0])}") from error


class Interpolated:
    """The tree of all keys where some values refer to others or to the environment."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self._tree = OmegaConf.create(tree)
        self.unresolved = cast("dict[str, Any]", OmegaConf.to_container(self._tree, resolve=False))
        self._references = References(self.unresolved)

    @property
    def exhausted(self) -> bool:
        """True if no further value may be asked for."""
        return self._references.exhausted

    def value(self, name: str, given: Given) -> Any:
        """Return the value of a key with its `${...}` replaced."""
        self._references.check(name, f"{given.name}={given.shown}{given.place}")
        try:
            value = OmegaConf.select(self._tree, name)
            return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except (OmegaConfBaseException, ValueError) as error:
            unset = UNSET.search(str(error))
            reason = f"${unset[1]} is not set" if unset else printable(str(error).splitlines()[0])
            raise given.error(f"cannot be resolved: {reason}") from error


class References:
    """The references between the values of one tree, with a budget for following them."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self._tree = tree
        self._references = self._characters = 0

    @property
    def exhausted(self) -> bool:
        """True if nothing may be followed any more."""
        return self._references > MOST_REFERENCES or self._characters > MOST_CHARACTERS

    def check(self, name: str, shown: str) -> None:
        """Raise a `UserError`, which begins with `shown`, if resolving this key takes more than is left."""
        self._follow(tuple(name.split(".")), (), shown)

    def _follow(self, path: Path, chain: tuple[Path, ...], shown: str) -> None:
        value = _at(self._tree, path)
        self._references += 1
        self._characters += len(value) if isinstance(value, str) else 8
        if len(chain) > DEEPEST_CHAIN:
            raise UserError(f"{shown}: its ${{...}} lead through more than {DEEPEST_CHAIN} other values; write it out")
        if self.exhausted:
            raise UserError(f"{shown}: its ${{...}} stand for too much once they are replaced; write it out")
        if isinstance(value, dict | list):
            for name in value if isinstance(value, dict) else range(len(value)):
                self._follow((*path, name), chain, shown)
        elif isinstance(value, str) and "${" in value and path not in chain:  # OmegaConf names a circle
            for target in self._targets(value, path[:-1]):
                self._follow(target, (*chain, path), shown)

    def _targets(self, text: str, above: Path) -> Iterator[Path]:
        """The values that a text may refer to: every name in its interpolations that there is."""
        for opened in OPENED.finditer(text):
            for found in NAMES.finditer(opened[0]):
                name = found[0].replace("[", ".").replace("]", "").replace('"', "").replace("'", "")
                up = len(name) - len(name.lstrip("."))
                parts = tuple(part for part in name.split(".") if part)
                start = above[: len(above) - up + 1] if up else ()
                if parts and _at(self._tree, (*start, *parts)) is not None:
                    yield (*start, *parts)


def _at(tree: Any, path: Path) -> Any:
    for part in path:
        if isinstance(tree, list):
            index = int(part) if len(str(part)) < 9 and str(part).isdecimal() else len(tree)
            tree = tree[index] if index < len(tree) else None
        elif isinstance(tree, dict):
            tree = tree.get(part)
        else:
            return None
    return tree
