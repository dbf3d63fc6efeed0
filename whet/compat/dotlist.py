"""The effective config of a command of EasyR1 or VPPO-RL: dataclasses, then `config=FILE`, then arguments."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from whet.compat.compose import Composed
from whet.compat.trees import Flat, flattened, resolved, tree
from whet.config.loading.replaced import DERIVED
from whet.config.problems import did_you_mean, nearest_key
from whet.config.schema import all_keys
from whet.errors import UserError

_OPEN = (
    "worker.rollout.val_override_config",
    "worker.actor.model.override_config",
    "worker.critic.model.override_config",
    "worker.reward.reward_function_kwargs",
)


def compose_dotlist(dataclasses: str, shipped: str, shipped_path: str, arguments: list[str], folder: Path) -> Composed:
    """Return the effective config of a command that is run in `folder`.

    `dataclasses` and `shipped` name the trees of the system's own defaults and of the YAML file in its checkout.
    """
    flat, refused, missing = tree(dataclasses), list[str](), list[str]()
    older, fields = tree("easyr1_older"), _fields(folder)
    added = set[str]()
    given: dict[str, Any] = {}
    values: Flat = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if name == "config" and equals:
            values |= _file(text, shipped, shipped_path, dataclasses, folder, missing)
    for argument in arguments:
        if not argument.startswith("config="):
            values |= _argument(argument, refused)
    for key, value in values.items():
        if key not in flat and key not in older and key.rpartition(".")[2] in fields:
            added.add(key)  # of a fork
        _take(flat, given, key, value, refused, older.keys() | added)
    try:
        made = resolved(flat)
    except UserError as error:
        refused.append(str(error))
        made = {key: None if "${" in str(value) else value for key, value in flat.items()}
    return Composed(made, {key: made[key] for key in given if key in made}, added, tree(dataclasses), refused, missing)


def _fields(folder: Path) -> set[str]:
    """Return names of the fields of dataclasses in a checkout's config.py files; empty where there is no checkout."""
    files = (folder / "verl").rglob("config.py") if (folder / "verl" / "trainer" / "config.py").is_file() else ()
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    return {name for text in texts for name in re.findall(r"^    (\w+): ", text, re.MULTILINE)}


def _take(flat: Flat, given: dict[str, Any], key: str, value: Any, refused: list[str], others: Collection[str]) -> None:
    is_open = any(key == name or key.startswith(f"{name}.") for name in _OPEN)
    if key not in flat and key not in DERIVED and key not in others and not is_open:
        near = did_you_mean(nearest_key(key, flat))
        refused.append(f"{key}: there is no such key{near}")
        return
    known = all_keys().get(key)
    if value is None and flat.get(key) is not None and known is not None and not known.optional:
        refused.append(f"{key}= reads as null, and expects {known.expected}; leave it out, or give it a value")
        return
    if is_open:
        for name in _OPEN:
            if key.startswith(f"{name}."):
                flat.pop(name, None)
    flat[key] = given[key] = value


def _argument(argument: str, refused: list[str]) -> Flat:
    try:
        return flattened(OmegaConf.to_container(OmegaConf.from_dotlist([argument]), resolve=False))
    except (OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        refused.append(f"{argument}: cannot be read: {str(error).splitlines()[0]}")
        return {}


def _file(text: str, shipped: str, shipped_path: str, base: str, folder: Path, missing: list[str]) -> Flat:
    """Return what a YAML file gives; the one of the system's checkout is known where it is not on this machine."""
    path = folder / Path(text).expanduser()
    if path.is_file():
        try:
            read = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        except (OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError, OSError) as error:
            raise UserError(f"config={text}: cannot be read as YAML: {str(error).splitlines()[0]}") from error
        return flattened(read)
    if text.endswith(shipped_path) or Path(text).name == Path(shipped_path).name:
        missing.append(f"config={text} is not here; the values of the system's own {shipped_path} are taken")
        own, defaults = tree(shipped), tree(base)
        return {key: value for key, value in own.items() if key not in defaults or defaults[key] != value}
    missing.append(f"config={text}: there is no such file here, so its values are not known")
    return {}
