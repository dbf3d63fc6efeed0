"""`Translation`: another system's command in whet's keys, with what each key became."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.compat.compose import Composed
from whet.config.schema import all_keys


@dataclass(frozen=True)
class Setting:
    """One key of whet with the value that the command gives it, and the keys that it comes from."""

    key: str
    value: Any
    sources: tuple[str, ...]
    given: bool  # by the command; else it is the other system's default


@dataclass(frozen=True)
class Remark:
    """A key of the other system with a sentence."""

    key: str
    value: Any
    says: str

    def __str__(self) -> str:
        from whet.config.values import show

        return f"{self.key}={show(self.value)}: {self.says}"


@dataclass
class Translation:
    """What a command of another system is here."""

    system: str
    job: str
    settings: dict[str, Setting] = field(default_factory=dict)
    no_effect: list[Remark] = field(default_factory=list)
    refused: list[Remark] = field(default_factory=list)
    original: list[str] = field(default_factory=list)  # why the other system does not accept it either
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # differences that no key expresses
    values: Mapping[str, Any] = field(default_factory=dict)  # the other system's effective value of every key


class There:
    """The other system's effective values, as rules read them."""

    def __init__(self, composed: Composed) -> None:
        self.values: Mapping[str, Any] = composed.values
        self.given = composed.given
        self.wrong: dict[str, str] = {}  # given keys whose value is of another kind than what a rule reads

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str, default: Any = None) -> Any:
        """Return the effective value of a key; `default` where it is null or there is none."""
        value = self.values.get(key)
        return default if value is None else value

    def number(self, key: str, default: float = 0) -> float:
        """Return a finite number; `default` where the key is null or empty. Anything else is noted as wrong."""
        value = self.values.get(key)
        if isinstance(value, str) and value.isdecimal():  # by ${oc.env:NAME}
            value = int(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return value
        if value not in (None, ""):
            self.wrong[key] = "expected a number"
        return default

    def count(self, key: str, default: int = 1) -> int:
        """Return a number of things."""
        return int(self.number(key, default))

    def on(self, key: str) -> bool:
        """Return True if a switch is on; null and an empty text are off."""
        value = self.values.get(key)
        if isinstance(value, str) and value.lower() in ("true", "false", ""):
            return value.lower() == "true"
        if not isinstance(value, bool | int | float | None):
            self.wrong[key] = "expected true or false"
            return False
        return bool(value)

    def text(self, key: str, default: str = "") -> str:
        """Return a text; `default` where the key is null or empty."""
        value = self.values.get(key)
        if isinstance(value, list | dict):
            self.wrong[key] = "expected a text"
            return default
        return default if value in (None, "") else str(value)

    def is_given(self, *keys: str) -> bool:
        """Return True if the command gives one of the keys."""
        return any(key in self.given for key in keys)

    def below(self, prefix: str) -> dict[str, Any]:
        """Return the values below a section by the rest of their names."""
        start = f"{prefix}."
        return {key[len(start) :]: value for key, value in self.values.items() if key.startswith(start)}


class Here:
    """Collector of what rules find."""

    def __init__(self, there: There, made: Translation) -> None:
        self._there, self._made = there, made

    def has(self, key: str) -> bool:
        """Return True if this version of whet has a key."""
        return key in all_keys()

    def value(self, key: str, default: Any = None) -> Any:
        """Return what was set for a key of whet."""
        found = self._made.settings.get(key)
        return default if found is None else found.value

    def set(self, key: str, value: Any, *sources: str, given: bool | None = None) -> None:
        """Set a key of whet; `sources` are the keys that it comes from."""
        is_given = self._there.is_given(*sources) if given is None else given
        self._made.settings[key] = Setting(key, value, sources, is_given)

    def drop(self, key: str) -> None:
        """Take a setting back."""
        self._made.settings.pop(key, None)

    def note(self, sentence: str) -> None:
        """Note a difference."""
        if sentence not in self._made.notes:
            self._made.notes.append(sentence)

    def idle(self, key: str, says: str) -> None:
        """Note that a given key has no effect."""
        if self._there.is_given(key):
            self._made.no_effect.append(Remark(key, self._there.values.get(key), says))

    def refuse(self, key: str, says: str) -> None:
        """Refuse a key with what to do."""
        self._made.refused.append(Remark(key, self._there.values.get(key), says))
