"""From arguments to a `Config`: defaults < `config=FILE` < `key=value`, every error named before anything runs."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from whet.config.keys import get
from whet.config.loading.arguments import read_arguments, split_argument
from whet.config.loading.interpolation import References
from whet.config.loading.layer import Layer, fill_presets
from whet.config.loading.yaml_file import read_files
from whet.config.schema import Config, all_keys
from whet.config.secrets import comes_from_environment
from whet.config.texts import name_problem, printable, text_problem
from whet.config.values import Given, read_value, show
from whet.errors import UserError


def load_config(argv: list[str], default_file: Path | None = None) -> Config:
    """The config that `["config=FILE", "key=value", ...]` spell; without `config=`, `default_file` is read."""
    files = [split_argument(argument)[1] for argument in argv if argument.startswith("config=")]
    if len(files) > 1:
        raise UserError(f"config= is given {len(files)} times ({', '.join(map(show, files))}); keep one")
    if files == [""]:
        raise UserError("config=: has no value; name a YAML file")
    problem = text_problem(files[0]) or name_problem(files[0]) if files else None
    if problem:
        raise UserError(f"config={show(files[0])}: {problem}")
    source = Path(os.path.expanduser(files[0])) if files else default_file
    read = read_files(source) if source is not None else []
    return combine(read, [read_arguments([argument for argument in argv if not argument.startswith("config=")])])


def combine(read: list[tuple[Path, Layer]], given: list[Layer], extended: bool = False) -> Config:
    """Merge files, then layers given otherwise, into a typed config; later ones win.

    `extended` says that open choices may name functions that are registered in this process.
    """
    layers = [layer for _, layer in read] + given
    for layer in layers:
        fill_presets(layer)
    merged = _merged(layers)
    config = _typed(merged, layers, extended)
    config.written = _from_environment(merged, layers)
    config.source = read[-1][0].absolute() if read else None
    config.folders = tuple(path.absolute().parent for path, _ in reversed(read))
    return config


def _merged(layers: list[Layer]) -> DictConfig:
    tree = Config().to_dict()
    for layer in layers:
        tree = _over(tree, _nested(layer))
    return OmegaConf.create(tree)


def _over(base: Any, later: Any) -> Any:
    """Mappings joined, key by key; of anything else the later one."""
    if not isinstance(base, dict) or not isinstance(later, dict):
        return later
    return base | {name: _over(base.get(name), item) for name, item in later.items()}


def _nested(layer: Layer) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, given in layer.items():
        *above, leaf = name.split(".")
        branch = tree
        for part in above:
            branch = branch.setdefault(part, {})
            if not isinstance(branch, dict):
                raise given.error(f"{part} has a value of its own, so nothing can be below it; keep one")
        if isinstance(branch.get(leaf), dict) and not isinstance(given.value, dict):
            raise given.error(f"{leaf} has values below it, so it can have none of its own; keep one")
        branch[leaf] = given.value
    return tree


def _typed(merged: DictConfig, layers: list[Layer], extended: bool) -> Config:
    config = Config()
    extended = extended or _given_for("algorithm.extensions", layers) is not None
    tree: Any = OmegaConf.to_container(merged, resolve=False)
    references = References(tree)
    for name, key in all_keys().items():
        given = _given_for(name, layers)
        if given is not None:
            references.check(name, f"{given.name}={given.shown}{given.place}")
            resolved = Given(given.name, _resolved(merged, name, given), given.place, given.value)
            _set(config, name, read_value(key, resolved, extended))
    return config


def _given_for(name: str, layers: list[Layer]) -> Given | None:
    """Where the user set a key, or something below it; the last source wins."""
    for layer in reversed(layers):
        if name in layer:
            return layer[name]
        below = next((given for target, given in layer.items() if target.startswith(f"{name}.")), None)
        if below is not None:
            return Given(name, below.value, below.place)
    return None


def _resolved(merged: DictConfig, name: str, given: Given) -> Any:
    """The value of one key with its `${...}` replaced."""
    try:
        value = OmegaConf.select(merged, name)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except (OmegaConfBaseException, ValueError) as error:
        raise given.error(f"cannot be resolved: {printable(str(error).splitlines()[0])}") from error


def _from_environment(merged: DictConfig, layers: list[Layer]) -> dict[str, Any]:
    """Keys with text that comes from the environment, each as it was written. Numbers are no secrets."""
    tree: Any = OmegaConf.to_container(merged, resolve=False)
    found = {}
    for name, key in all_keys().items():
        if key.kind in ("str", "list", "table", "dict") and _given_for(name, layers) is not None:
            raw = functools.reduce(lambda branch, part: branch[part], name.split("."), tree)
            if comes_from_environment(raw, tree):
                found[name] = raw
    return found


def _set(config: Config, name: str, value: Any) -> None:
    above, _, leaf = name.rpartition(".")
    setattr(get(config, above), leaf, value)
