"""Config of a run beside the defaults, and beside another run's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.config.schema import all_keys
from whet.config.secrets import masked
from whet.config.values import show
from whet.plots.runs import read_settings


def compare(folder: Path, other: Path | None) -> list[dict[str, Any]]:
    """Return every key of a run's config with its value, its default, and the value of another run, as texts.

    Keys that are none any more are listed without a default.
    """
    mine = read_settings(folder / "config.yaml")
    theirs: Mapping[str, Any] = read_settings(other / "config.yaml") if other is not None else {}
    keys = all_keys()
    rows = []
    for name in dict.fromkeys([*mine, *theirs]):
        known = keys.get(name)
        row = {
            "key": name,
            "value": _text(mine, name),
            "default": show(known.default) if known is not None else None,
            "help": known.help if known is not None else "",
            "changed": known is None or _text(mine, name) != show(known.default),
        }
        if other is not None:
            row |= {"other": _text(theirs, name), "differs": mine.get(name) != theirs.get(name)}
        rows.append(row)
    return rows


def _text(settings: Mapping[str, Any], name: str) -> str | None:
    return show(masked(settings[name], name)) if name in settings else None
