"""From arguments to a `Config`: defaults < `config=FILE` < `key=value`, every error named before anything runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from whet.config.arguments import read_arguments, split_argument
from whet.config.keys import get
from whet.config.layer import Layer, fill_presets
from whet.config.schema import Config, all_keys
from whet.config.values import Given, read_value
from whet.config.yaml_file import read_files
from whet.errors import UserError


def load_config(argv: list[str], default_file: Path | None = None) -> Config:
    """The config that `["config=FILE", "key=value", ...]` spell; without `config=`, `default_file` is read."""
    files = [split_argument(argument)[1] for argument in argv if argument.startswith("config=")]
    if len(files) > 1:
        raise UserError(f"config= is given {len(files)} times ({', '.join(files)}); keep one")
    if files == [""]:
        raise UserError("config=: has no value; name a YAML file")
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
    config = _typed(_merged(layers), layers, extended)
    config.source = read[-1][0].absolute() if read else None
    config.folders = tuple(path.absolute().parent for path, _ in reversed(read))
    return config


def _merged(layers: list[Layer]) -> DictConfig:
    trees = [OmegaConf.create(_nested({name: given.value for name, given in layer.items()})) for layer in layers]
    merged = OmegaConf.merge(OmegaConf.create(Config().to_dict()), *trees)
    assert isinstance(merged, DictConfig)
    return merged


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *above, leaf = name.split(".")
        branch = tree
        for part in above:
            branch = branch.setdefault(part, {})
            if not isinstance(branch, dict):
                raise UserError(f"{name}: {part} has a value of its own besides names below it; keep one")
        branch[leaf] = value
    return tree


def _typed(merged: DictConfig, layers: list[Layer], extended: bool) -> Config:
    config = Config()
    extended = extended or _given_for("algorithm.extensions", layers) is not None
    for name, key in all_keys().items():
        given = _given_for(name, layers)
        if given is not None:
            resolved = Given(given.name, _resolved(merged, name, given), given.place)
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
    except OmegaConfBaseException as error:
        raise given.error(f"cannot be resolved: {str(error).splitlines()[0]}") from error


def _set(config: Config, name: str, value: Any) -> None:
    above, _, leaf = name.rpartition(".")
    setattr(get(config, above), leaf, value)
