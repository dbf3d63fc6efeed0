"""The effective config of another system's Hydra command: its defaults, its YAML files, then the arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from whet.compat.hydra import CommandLine, Override, read_command_line
from whet.compat.names import MEGATRON_GROUPS, newer_name
from whet.compat.trees import Flat, flattened, resolved, tree
from whet.config.problems import did_you_mean, nearest_key
from whet.errors import UserError


@dataclass
class Composed:
    """Effective values of another system's command, and what was noticed on the way."""

    values: Flat  # every key of the system, resolved
    given: dict[str, Any]  # those that the command or a file of the user's gives
    added: set[str] = field(default_factory=set)  # keys that the system does not have by itself
    defaults: Flat = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)  # why the original does not accept the command
    missing: list[str] = field(default_factory=list)  # files that are not on this machine


@dataclass(frozen=True)
class Trees:
    """Names of the default trees of an entry point: by config name, and of keys that later versions add."""

    default: str
    by_name: dict[str, str]
    newer: tuple[str, ...] = ()


class _Composer:
    def __init__(self, trees: Trees, line: CommandLine, folder: Path) -> None:
        self.trees, self.line, self.folder = trees, line, folder
        self.refused = list(line.refused)
        self.missing: list[str] = []
        self.given: dict[str, Any] = {}
        self.added: set[str] = set()
        self.newer: Flat = {}
        for name in trees.newer:
            self.newer |= tree(name)

    def run(self) -> Composed:
        flat = self._start()
        defaults = dict(flat)
        flat = self._groups(flat)
        for override in self.line.overrides:
            self._apply(flat, override)
        values = self._resolved(flat)
        if values.get("actor_rollout_ref.rollout.name") == "???":
            self.refused.append("actor_rollout_ref.rollout.name is not given, and has no default there")
        values = {key: None if value == "???" else value for key, value in values.items()}
        shown = self._resolved(defaults)
        return Composed(values, self._final(values), self.added, shown, self.refused, self.missing)

    def _resolved(self, flat: Flat) -> Flat:
        try:
            return resolved(flat)
        except UserError as error:
            self.refused.append(str(error))
            return {key: None if "${" in str(value) else value for key, value in flat.items()}

    def _final(self, values: Flat) -> dict[str, Any]:
        return {key: values[key] for key in self.given if key in values}

    def _start(self) -> Flat:
        """Return the tree of --config-name: a file where --config-path leads, or the packaged defaults."""
        name = (self.line.name or "").removesuffix(".yaml")
        for folder in filter(None, (self.line.path, self.line.folder)):
            file = self.folder / Path(folder).expanduser() / f"{name}.yaml"
            if name and file.is_file():
                return self._from_file(file)
        if not name:
            return tree(self.trees.default)
        known = self.trees.by_name.get(name)
        if known is None:
            self.refused.append(
                f"--config-name={self.line.name}: there is no such file in the system's own folder"
                f"{f', nor in {self.line.path}' if self.line.path else ''}"
            )
            megatron = self.trees.by_name.get("ppo_megatron_trainer", self.trees.default)
            return tree(megatron if "megatron" in name else self.trees.default)
        if (self.line.path and Path(self.line.path).parts[-1:] != ("config",)) or "multiturn" in name:
            self.missing.append(f"{self.line.path or '.'}/{name}.yaml is not here; its values of verl 0.8 are taken")
        flat = tree(known)
        base = tree(self.trees.default)
        for key, value in flat.items():
            if not known.endswith("megatron") and base.get(key, "") != value:
                self.given[key] = value
        return flat

    def _from_file(self, file: Path, seen: frozenset[Path] = frozenset()) -> Flat:
        """Return what a YAML file says, over the files of its defaults list."""
        content = _yaml(file)
        entries = content.pop("defaults", ["_self_"])
        content.pop("hydra", None)
        if "_self_" not in entries:
            entries = [*entries, "_self_"]
        flat: Flat = {}
        own = flattened(content)
        for entry in entries:
            if entry == "_self_":
                flat = {**_without(flat, own), **own}
                self.given |= own
            else:
                flat |= self._default(entry, file, seen | {file})
        return flat

    def _default(self, entry: Any, file: Path, seen: frozenset[Path]) -> Flat:
        if isinstance(entry, str):
            beside = file.parent / f"{entry.removesuffix('.yaml')}.yaml"
            if beside.is_file() and beside not in seen:
                return self._from_file(beside, seen)
            if entry in self.trees.by_name:
                return tree(self.trees.by_name[entry])
            self.refused.append(f"{file.name}: its defaults name {entry}, and there is no such file")
            return {}
        if not isinstance(entry, dict) or len(entry) != 1:
            raise UserError(f"{file}: an entry of its defaults list is neither a name nor group: name")
        group, choice = next(iter(entry.items()))
        group, _, package = str(group).removeprefix("override ").partition("@")
        beside = file.parent / group.strip() / f"{choice}.yaml"
        if beside.is_file() and beside not in seen:
            found = self._from_file(beside, seen)
            place = package.replace("_here_", "").strip(".") or group.strip().replace("/", ".")
            return {f"{place}.{key}": value for key, value in found.items()}
        if "megatron" in str(choice):
            return tree(self.trees.by_name.get("ppo_megatron_trainer", self.trees.default))
        return {}

    def _groups(self, flat: Flat) -> Flat:
        """Take choices of groups out of the arguments: only those between FSDP's files and Megatron's are known."""
        rest: list[Override] = []
        for override in self.line.overrides:
            group = override.key.partition("@")[0]
            is_group = "@" in override.key or "/" in override.key or group in MEGATRON_GROUPS
            if not is_group or group not in MEGATRON_GROUPS:
                if is_group:
                    self.refused.append(f"{override.written}: no group of files that is known here")
                else:
                    rest.append(override)
            elif "megatron" in str(override.value):
                megatron = self.trees.by_name.get("ppo_megatron_trainer")
                flat = tree(megatron) | {key: flat[key] for key in self.given} if megatron else flat
        self.line.overrides = rest
        return flat

    def _apply(self, flat: Flat, override: Override) -> None:
        key, value = newer_name(override.key), override.value
        if key.startswith("hydra."):
            return
        if key != override.key and key not in flat:
            self.newer.setdefault(key, None)
        below = [each for each in flat if each.startswith(f"{key}.")]
        exists = key in flat or bool(below)
        if override.mode == "~":
            if not exists:
                self.refused.append(f"{override.written}: there is no such key to take away")
            for each in [key, *below]:
                flat.pop(each, None)
                self.given.pop(each, None)
            return
        if override.mode == "" and not exists and key not in self.newer:
            near = did_you_mean(nearest_key(key, flat))
            self.refused.append(f"{override.written}: there is no key {key} (a new one is added by +{key}=...){near}")
        if override.mode == "+" and exists and not isinstance(value, dict) and (below or flat[key] not in (None, {})):
            self.refused.append(
                f"{override.written}: {key} is there already, and + adds new keys only; leave out the +"
            )
        if not exists and key not in self.newer and not any(key.startswith(f"{each}.") for each in self.newer):
            self.added.add(key)
        _put(flat, key, value, below)
        for leaf in flattened(value, key) if isinstance(value, dict) else (key,):
            self.given[leaf] = value


def _put(flat: Flat, key: str, value: Any, below: list[str]) -> None:
    if isinstance(value, dict) and (below or value):
        flat |= flattened(value, key)
        return
    for each in below:
        del flat[each]
    parts = key.split(".")
    for length in range(1, len(parts)):  # a null or {} above gives way
        flat.pop(".".join(parts[:length]), None)
    flat[key] = value


def _without(flat: Flat, later: Iterable[str]) -> Flat:
    """Return the tree without keys that are above or below later ones."""
    above = {".".join(key.split(".")[:length]) for key in later for length in range(1, key.count(".") + 1)}
    return {key: value for key, value in flat.items() if key not in above}


def _yaml(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{file}: cannot be read as YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict | None):
        raise UserError(f"{file}: expected keys and values")
    return found or {}


def compose_hydra(trees: Trees, arguments: list[str], folder: Path) -> Composed:
    """Return the effective config of a Hydra command that is run in `folder`."""
    return _Composer(trees, read_command_line(arguments), folder).run()
