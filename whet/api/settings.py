"""Build a job's typed config from its arguments: defaults < config= < keywords, with the checks of the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from whet.api.names import ShortName, names_of
from whet.config import Config, nearest, run_folder
from whet.config.jobs import JOBS, problems_of
from whet.config.keys import get, with_values
from whet.config.loading.layer import Layer, is_section, record, record_tree
from whet.config.loading.load import Loaded, combine
from whet.config.loading.yaml_file import read_files
from whet.config.objectives import objective_settings
from whet.config.problems import raise_problems
from whet.config.schema import all_keys, escaped
from whet.config.values import Given
from whet.errors import UserError

ConfigLike = str | Path | Mapping[str, Any] | Config | None
_DEEPEST = 16


def read_settings(
    job: str,
    config: ConfigLike,
    overrides: Mapping[str, Any] | None,
    keys: Mapping[str, Any],
    arguments: dict[str, Any],
) -> Config:
    """Build the config of a job.

    `keys` are short names or full keys, `arguments` are full keys by (key, name of the parameter that gave it).
    """
    given = Layer()
    for key, (parameter, value) in arguments.items():
        _record(Given(key, plain(value, parameter), f" ({parameter}=)"), given)
    if overrides is not None and not isinstance(overrides, Mapping):
        raise UserError(f"overrides: expected a dict from config keys to values, got {type(overrides).__name__}")
    for source, place in ((keys, " (keyword)"), (overrides or {}, " (overrides=)")):
        for name, value in source.items():
            try:
                _record_named(job, name, value, place, given)
            except UserError as error:
                given.refuse(error, name if isinstance(name, str) else None)
    for short in {names_of(job)[name] for name in keys if name in names_of(job)}:
        _fill(short, given)
    read, base = _base(config)
    loaded = combine(read, [base, given], extended="whet.algos.registry" in sys.modules)
    if loaded.problems:
        raise_problems(_all_problems(job, loaded))
    if isinstance(config, Config):  # relative paths in it start where they did
        return replace(loaded.config, source=config.source, folders=config.folders, origin=config.origin)
    if isinstance(config, Mapping):
        return replace(loaded.config, origin="the dict given as config")
    return loaded.config


def _all_problems(job: str, loaded: Loaded) -> list[str]:
    """Return the problems of names and values, and those of the job's checks that can be evaluated all the same."""
    known = JOBS.get({"evaluate": "eval"}.get(job, job))
    if known is None:  # a session is checked in a way of its own
        return [problem.sentence for problem in loaded.problems]
    return problems_of(loaded, known.checks, known.view, unknown=("generate.files", "generate.output"))


def new_folder(config: Config, job: str) -> Path:
    """Return the folder that the config names, or one that does not exist yet: a call without a name starts afresh."""
    trainer, default = config.trainer, Config().trainer
    chosen = (trainer.save_checkpoint_path, trainer.project_name, trainer.experiment_name)
    if chosen != (default.save_checkpoint_path, default.project_name, default.experiment_name):
        return run_folder(config).absolute()
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    parent = Path("checkpoints").absolute() / trainer.project_name
    names = (f"{job}-{stamp}{f'-{count}' if count else ''}" for count in range(10_000))
    return next(parent / name for name in names if not (parent / name).exists())


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return a value as a config holds it: paths as text, tuples as lists, numpy's scalars as numbers."""
    if depth > _DEEPEST:
        raise UserError(f"{where}: the value is nested too deeply, or contains itself")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UserError(f"{where}: the key {key!r} has the type {type(key).__name__}; config keys are text")
        return {key: plain(each, f"{where}.{key}", depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each, where, depth + 1) for each in value]
    if hasattr(type(value), "dtype") and hasattr(type(value), "tolist"):
        return plain(value.tolist(), where, depth + 1)
    raise UserError(f"{where}: expected text, a number, true or false, a list or a dict, got {type(value).__name__}")


def _record_named(job: str, name: Any, value: Any, place: str, layer: Layer) -> None:
    if not isinstance(name, str):
        raise UserError(f"overrides: the key {name!r} has the type {type(name).__name__}; config keys are text")
    short = names_of(job).get(name)
    if short is not None and not (is_section(name) and isinstance(value, Mapping)):
        for key in short.keys:
            _record(Given(key, plain(value, name), f" ({name}=)"), layer)
        return
    if short is None and "." not in name and not is_section(name):
        raise UserError(_unknown(job, name))
    _record(Given(name, plain(value, name), place), layer)


def _fill(short: ShortName, layer: Layer) -> None:
    """Give the keys that follow a keyword where nobody has given them; a keyword that was refused gives none."""
    leader = layer.get(short.keys[0])
    if leader is None:
        return
    for key in short.replaces:
        if key not in layer:
            layer[key] = Given(key, leader.value, f" ({short.name}=)")


def _record(given: Given, layer: Layer) -> None:
    if is_section(given.name):
        record_tree(given.name, given.value, lambda _: given.place, layer)
    else:
        record(given, layer)


def _base(config: ConfigLike) -> tuple[list[tuple[Path, Layer]], Layer]:
    """Read what `config=` gives: the files of a path, or the layer of a tree."""
    if config is None:
        return [], Layer()
    if isinstance(config, str | Path):
        if not str(config).strip() or "\0" in str(config):
            raise UserError(f"config={str(config)!r}: name a YAML file, or give a dict")
        return read_files(Path(os.path.expanduser(config))), Layer()
    layer = Layer()
    if isinstance(config, Config):
        config = _changed(config)
    elif not isinstance(config, Mapping):
        raise UserError(f"config: expected a YAML file or a dict, got {type(config).__name__}")
    for name, value in config.items():
        if not isinstance(name, str):
            raise UserError(f"config: the key {name!r} has the type {type(name).__name__}; config keys are text")
        _record(Given(name, plain(value, f"config: {name}"), " (config=)"), layer)
    return [], layer


def _changed(config: Config) -> dict[str, Any]:
    """Return the keys of a config that differ from the defaults, those of its objective included."""
    found, default = {}, with_values(Config(), objective_settings(lambda name: get(config, name)))
    for name in all_keys():
        value = get(config, name)
        if value != get(default, name):
            found[name] = escaped(plain(value, name))
    return found


def _unknown(job: str, name: str) -> str:
    near = nearest(name, names_of(job))
    if near is None:
        leaves = {key.rpartition(".")[2]: key for key in reversed(list(all_keys()))}
        found = nearest(name, leaves)
        near = f'**{{"{leaves[found]}": ...}}' if found else None
    title = "Session" if job == "session" else job
    hint = f"did you mean {near}?" if near else f"help(whet.{title}) lists them, and `whet config` every config key"
    return f"whet.{title} has no keyword {name!r}; {hint}"
