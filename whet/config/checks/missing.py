"""Sentence about a path with nothing there, with the nearest one that exists."""

from __future__ import annotations

import os
from pathlib import Path

from whet.config.files import resolve_path
from whet.config.problems import did_you_mean, nearest
from whet.config.schema import Config
from whet.config.values import show


def missing(config: Config, key: str, value: str, what: str, advice: str = "") -> str:
    """Return the sentence about a key whose value names no file or folder, where it was looked for, and advice."""
    looked = (
        f" (nor in {config.source.parent})" if config.source and not os.path.isabs(os.path.expanduser(value)) else ""
    )
    if any(os.path.islink(path) for path in (os.path.expanduser(value), resolve_path(config, value))):
        return f"{key}={show(value)}: this link leads to no {what}"
    sibling = _nearest_sibling(config, value)
    end = did_you_mean(sibling) if sibling or not advice else f"; {advice}"
    return f"{key}={show(value)}: there is no such {what}{looked}{end}"


def _nearest_sibling(config: Config, value: str) -> str | None:
    """A path that exists and differs only a little from the missing one, in the first name that is missing."""
    for path in (Path(os.path.expanduser(value)), resolve_path(config, value)):
        missing = next((part for part in (path, *path.parents) if os.path.isdir(part.parent)), path)
        names = sorted(os.listdir(missing.parent)) if os.path.isdir(missing.parent) else []
        found = nearest(missing.name, names)
        if found is not None:
            whole = missing.parent / found / path.relative_to(missing)
            return str(whole if os.path.exists(whole) else missing.parent / found)
    return None
