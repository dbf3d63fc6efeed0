"""Default trees of the other systems: every key of an entry point with its default, from the files in `trees/`.

A file holds `tree` (dotted key: value, interpolations as they are written there), and may start from the tree of `base`
without the keys in `removed`.
"""

from __future__ import annotations

import functools
import re
from datetime import datetime
from importlib.resources import files
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from whet.config.texts import printable
from whet.errors import UserError

Flat = dict[str, Any]
_REFERENCE = re.compile(r"\$\{(?P<select>oc\.select:)?(?P<name>\.?[\w-]+(\.[\w-]+)*)(,\s*(?P<default>[^{}]*))?\}")
_NOW = re.compile(r"\$\{now:([^{}]*)\}")  # of Hydra, besides what OmegaConf has


@functools.cache
def _read(name: str) -> Flat:
    source = files("whet.compat").joinpath("trees").joinpath(f"{name}.yaml")
    found = yaml.load(source.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    base = _read(found["base"]) if "base" in found else {}
    removed = set(found.get("removed", ()))
    return {key: value for key, value in base.items() if key not in removed} | found["tree"]


def tree(name: str) -> Flat:
    """Return the keys of an entry point with their defaults; interpolations are not replaced."""
    return dict(_read(name))


def nested(flat: Flat) -> dict[str, Any]:
    """Return dotted keys as a tree of mappings; a mapping as a value is joined with what is below its key."""
    made: dict[str, Any] = {}
    for key, value in flat.items():
        *above, leaf = key.split(".")
        branch = made
        for part in above:
            below = branch.get(part)
            if not isinstance(below, dict):  # a value that gives way to keys below it, as null and {} do
                below = branch[part] = {}
            branch = below
        if not (value in (None, {}) and isinstance(branch.get(leaf), dict)):
            branch[leaf] = dict(value) if isinstance(value, dict) else value
    return made


def flattened(branch: Any, above: str = "") -> Flat:
    """Return the leaves of a tree by dotted key; an empty mapping is a leaf."""
    if not isinstance(branch, dict) or not branch:
        return {above: branch} if above else {}
    made: Flat = {}
    for name, value in branch.items():
        made |= flattened(value, f"{above}.{name}" if above else str(name))
    return made


def resolved(flat: Flat) -> Flat:
    """Return the tree with every `${...}` replaced.

    References to other keys, which are all that the systems' own files have, are followed here; anything else (oc.env,
    whole sections) is left to OmegaConf, which takes a hundred times as long.
    """
    try:
        return {key: _followed(flat, key, value, ()) for key, value in flat.items()}
    except _NotSimpleError:
        return _by_omegaconf(flat)


class _NotSimpleError(Exception):
    """An interpolation of another form."""


def _followed(flat: Flat, key: str, value: Any, seen: tuple[str, ...]) -> Any:
    if not isinstance(value, str) or "${" not in value:
        if isinstance(value, list | dict) and "${" in str(value):
            raise _NotSimpleError
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole:
        return _target(flat, key, whole, seen)
    text = _REFERENCE.sub(lambda found: str(_target(flat, key, found, seen)), value)
    if "${" in text:
        raise _NotSimpleError
    return text


def _target(flat: Flat, key: str, found: re.Match[str], seen: tuple[str, ...]) -> Any:
    name = found["name"]
    if name.startswith("."):
        name = f"{key.rpartition('.')[0]}{name}"
    if name in seen:
        raise _NotSimpleError
    if name in flat and (flat[name] is not None or found["default"] is None):
        return _followed(flat, name, flat[name], (*seen, name))
    if found["default"] is None or not found["select"] or any(each.startswith(f"{name}.") for each in flat):
        raise _NotSimpleError
    return yaml.safe_load(found["default"])


def _by_omegaconf(flat: Flat) -> Flat:
    now = datetime.now()
    dated = {
        key: _NOW.sub(lambda found: now.strftime(found[1]), value) if isinstance(value, str) else value
        for key, value in flat.items()
    }
    whole: DictConfig = OmegaConf.create(nested(dated))
    plain: Any = OmegaConf.to_container(whole, resolve=False)
    made: Flat = {}
    for key, value in flattened(plain).items():
        made[key] = _resolved(whole, key) if "${" in str(value) else value
    return made


def _resolved(whole: DictConfig, key: str) -> Any:
    try:
        found = OmegaConf.select(whole, key)
        return OmegaConf.to_container(found, resolve=True) if OmegaConf.is_config(found) else found
    except (OmegaConfBaseException, ValueError, RecursionError) as error:
        reason = printable(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise UserError(f"{key}: its interpolation cannot be resolved: {reason}") from error
