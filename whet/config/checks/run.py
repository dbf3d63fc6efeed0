"""Run checks of a config, those that can still be evaluated where some keys have no usable value."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

from whet.config.keys import get, with_values
from whet.config.problems import sentences_of
from whet.config.schema import Config, all_keys
from whet.errors import UserError

Check = Callable[[Config], Iterable[str]]


class UnknownValueError(Exception):
    """A check has asked for a key whose value could not be read."""


def run_checks(checks: Sequence[Check], config: Config) -> list[str]:
    """Return a sentence for each problem that the checks find, in their order and each once.

    A `UserError` that a check raises is a problem too. A check that asks for a key without a value (`hide`) ends there.
    """
    found: list[str] = []
    for check in checks:
        try:
            found.extend(check(config))  # keeps what a check found before it ended by an error
        except UserError as error:
            found += sentences_of(error)
        except UnknownValueError:
            continue
    return list(dict.fromkeys(found))


def where_set(checks: str, *names: str) -> Check:
    """Return the checks of a feature as one, whose module is imported only where one of the feature's keys is set.

    `checks` is a module of this package and its tuple, such as `devices.DEVICE_CHECKS`; `names` are keys, or sections
    with a dot at their end. A key without a usable value counts as set.
    """
    module, _, attribute = checks.partition(".")
    sections = tuple(name for name in names if name.endswith("."))

    @functools.cache
    def defaults() -> dict[str, Any]:
        found = {name: key.default for name, key in all_keys().items() if name in names or name.startswith(sections)}
        assert found.keys() >= {*names} - {*sections}, checks
        return found

    def check(config: Config) -> Iterable[str]:
        if dict(known_values(config, defaults())) == defaults():
            return ()
        return run_checks(getattr(import_module(f"whet.config.checks.{module}"), attribute), config)

    return check


def hide(config: Config, names: Iterable[str]) -> Config:
    """Return a config on which reading one of these keys raises `UnknownValueError`; for checks only."""
    sections: dict[str, set[str]] = {}
    for name in names:
        above, _, leaf = name.rpartition(".")
        sections.setdefault(above, set()).add(leaf)
    for above, leaves in sections.items():
        config = with_values(config, {above: _without(get(config, above), leaves)})
    return config


def known_values(config: Any, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield each of these keys that has a value, with it."""
    for name in names:
        try:
            yield name, get(config, name)
        except UnknownValueError:
            continue


def _without(section: Any, leaves: set[str]) -> Any:
    """Return a copy of a section in a class whose properties for these keys raise; copies of it stay so."""
    made = copy.copy(section)
    hidden = {leaf: property(_unknown, lambda section, value: None) for leaf in leaves}  # set by dataclasses.replace
    unknown = type(type(section).__name__, (type(section),), hidden)
    object.__setattr__(made, "__class__", unknown)
    return made


def _unknown(section: Any) -> Iterator[str]:
    raise UnknownValueError
