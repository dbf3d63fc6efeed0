"""The effective config of another system's Hydra command: its defaults, its YAML files, then the arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

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
    notes: list[str] = field(default_factory=list)  # differences between versions of the system
    own: set[str] = field(default_factory=set)  # keys that only the checkout in the script's folder has
    multirun: bool = False  # several runs in one command


@dataclass(frozen=True)
class Trees:
    """Names of the default trees of an entry point: by config name, and of keys that later versions add."""

    default: str
    by_name: dict[str, str]
    newer: tuple[str, ...] = ()
    places: tuple[str, ...] = ()  # folders of the main in a checkout, to which --config-path is relative


class _Composer:
    def __init__(self, trees: Trees, line: CommandLine, folder: Path) -> None:
        self.trees, self.line, self.folder = trees, line, folder
        self.refused = list(line.refused)
        self.missing: list[str] = []
        self.notes: list[str] = []
        self.given: dict[str, Any] = {}
        self.added: set[str] = set()
        self.checkout: Flat = {}  # what the checkout's own file says; empty without one
        self.own: set[str] = set()
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
            values["actor_rollout_ref.rollout.name"] = "vllm"
            self.notes.append(
                "actor_rollout_ref.rollout.name is not given, which verl refuses since 0.6: its old default, vllm"
            )
        values = {key: None if value == "???" else value for key, value in values.items()}
        shown = self._resolved(defaults)
        return Composed(
            values,
            self._final(values),
            self.added,
            shown,
            self.refused,
            self.missing,
            self.notes,
            self.own,
            self.line.multirun,
        )

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
        known = self.trees.by_name.get(name)
        file = self._file_named(name, known is None) if name else None
        if file is not None:
            return self._from_file(file)
        if not name:
            own = next((each for each, of in self.trees.by_name.items() if of == self.trees.default), "")
            return self._edited(tree(self.trees.default), own)
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
        return self._edited(flat, name)

    def _file_named(self, name: str, unknown: bool) -> Path | None:
        """Return the file of a config's name; beside the main of a checkout only one that is not packaged here."""
        folders = [Path(each).expanduser() for each in (self.line.path, self.line.folder) if each]
        beside = [Path(place) / (self.line.path or "config") for place in self.trees.places] if unknown else []
        files = (self.folder / folder / f"{name}.yaml" for folder in [*folders, *beside])
        return next((file for file in files if file.is_file()), None)

    def _edited(self, flat: Flat, name: str) -> Flat:
        """Return the packaged tree with what a checkout in the script's folder has changed and added in its file."""
        file = self._own_file(name)
        if file is None:
            return flat
        reader = _Composer(self.trees, CommandLine(), self.folder)
        found = reader._from_file(file)
        theirs, ours = reader._resolved(found), self._resolved(flat)
        if reader.refused:
            self.missing.append(f"{file} cannot be read as a whole, and the values of verl 0.8 are taken")
            return flat
        changed = {  # interpolations may be written in other ways
            key: found[key]
            for key in flat
            if key in found and found[key] != flat[key] and key in theirs and theirs[key] != ours.get(key)
        }
        self.given |= changed
        self.checkout = found
        self.own = {newer_name(key) for key in found} - {*flat, *_sections(flat)}
        made = flat | changed
        for key in found:
            if newer_name(key) in self.own:
                _put(made, newer_name(key), theirs[key], [])
        return made

    def _own_file(self, name: str) -> Path | None:
        """Return a checkout's file of a config: in the script's folder, above it, or the only one in a folder of it."""
        places = dict.fromkeys((*self.trees.places, "verl/trainer"))
        for folder in (self.folder, *self.folder.absolute().parents):
            files = (folder / place / "config" / f"{name}.yaml" for place in places)
            if found := next((file for file in files if file.is_file()), None):
                return found
        below = [file for place in places for file in self.folder.glob(f"*/{place}/config/{name}.yaml")]
        return below[0] if len(below) == 1 else None

    def _from_file(self, file: Path, seen: frozenset[Path] = frozenset()) -> Flat:
        """Return what a YAML file says, over the files of its defaults list."""
        content = _yaml(file)
        entries = content.pop("defaults", ["_self_"])
        content.pop("hydra", None)
        if "_self_" not in entries:
            entries = [*entries, "_self_"]
        flat: Flat = {}
        own = {key: value for key, value in flattened(content).items() if not key.endswith("_target_")}
        for entry in entries:
            if entry == "_self_":
                flat = {**_without(flat, own), **own}
                self.given |= own
            else:
                flat |= self._default(entry, file, seen | {file})
        return flat

    def _default(self, entry: Any, file: Path, seen: frozenset[Path]) -> Flat:
        if isinstance(entry, str):
            if entry in self.trees.by_name and not (file.parent / f"{entry}.yaml").is_file():
                return self._edited(tree(self.trees.by_name[entry]), entry)
            name, _, package = entry.removesuffix(".yaml").partition("@")
            return self._below(package, file.parent / f"{name}.yaml", f"{file.name}: its defaults name {entry}", seen)
        if not isinstance(entry, dict) or len(entry) != 1:
            raise UserError(f"{file}: an entry of its defaults list is neither a name nor group: name")
        group, choice = next(iter(entry.items()))
        name, _, package = str(group).removeprefix("override ").removeprefix("optional ").strip().partition("@")
        if choice is None or name.startswith("hydra/"):
            return {}
        place = package or name.replace("/", ".")
        beside = file.parent / name / f"{choice}.yaml"
        return self._below(place, beside, f"{file.name}: its defaults name {group}: {choice}", seen)

    def _below(self, package: str, file: Path, says: str, seen: frozenset[Path]) -> Flat:
        """Return what a file gives to a section; where it is not here, the packaged values of that section."""
        place = package.replace("_here_", "").replace("_global_", "").strip(".")
        prefix = f"{place}." if place else ""
        if file.is_file() and file not in seen:
            found, given = self._from_file(file, seen), dict(self.given)
            self.given = {f"{prefix}{key}" if key in found else key: value for key, value in given.items()}
            return {f"{prefix}{key}": value for key, value in found.items()}
        known = self.trees.by_name.get("ppo_megatron_trainer") if "megatron" in file.stem else self.trees.default
        packaged = {key: value for key, value in tree(known or self.trees.default).items() if key.startswith(prefix)}
        if not place or not packaged:
            self.refused.append(f"{says}, and there is no such file")
            return {}
        self.missing.append(f"{says}, which is not here; its values of verl 0.8 are taken")
        return packaged

    def _groups(self, flat: Flat) -> Flat:
        """Take choices of groups out of the arguments: only those between FSDP's files and Megatron's are known."""
        rest: list[Override] = []
        for override in self.line.overrides:
            group = override.key.partition("@")[0]
            if group.startswith("hydra/"):
                continue
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
        there = exists and (not self.checkout or key in self.checkout or key in _sections(self.checkout))
        if override.mode == "+" and there and not isinstance(value, dict) and (below or flat[key] not in (None, {})):
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


def _sections(keys: Iterable[str]) -> set[str]:
    """Return the names of all sections above keys."""
    return {".".join(key.split(".")[:length]) for key in keys for length in range(1, key.count(".") + 1)}


def _without(flat: Flat, later: Iterable[str]) -> Flat:
    """Return the tree without keys that are above or below later ones."""
    above = _sections(later)
    return {key: value for key, value in flat.items() if key not in above}


def _yaml(file: Path) -> dict[str, Any]:
    try:  # by OmegaConf, to which 1e-6 is a number
        found: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except (OSError, UnicodeDecodeError, OmegaConfBaseException, yaml.YAMLError) as error:
        raise UserError(f"{file}: cannot be read as YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict | None):
        raise UserError(f"{file}: expected keys and values")
    return found or {}


def compose_hydra(trees: Trees, arguments: list[str], folder: Path) -> Composed:
    """Return the effective config of a Hydra command that is run in `folder`."""
    return _Composer(trees, read_command_line(arguments), folder).run()
