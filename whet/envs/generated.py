"""Rows that an environment package generates: `data.train_files=NAME:ARGUMENT@1000`.

reasoning_gym:countdown                               rows 1 to 1000
reasoning_gym:countdown@200                           rows 1 to 200
reasoning_gym:countdown@1001-1100                     rows 1001 to 1100, which share none with the first
reasoning_gym:countdown?min_numbers=3&seed=7@1000     with settings of the package's
"""

from __future__ import annotations

import json
import re
from typing import Any

from whet.config.schema.data import ROWS
from whet.errors import UserError

MOST = 10_000_000
USUAL = 1000  # rows where no number is given
_RANGE = re.compile(r"(?:([1-9]\d{0,8})-)?([1-9]\d{0,8})")


def is_generated(spec: str) -> bool:
    """True if a spec of data names rows of an adapter."""
    name, colon, _ = spec.partition(":")
    return bool(colon) and name in ROWS.names


def generated_rows(spec: str, key: str) -> list[dict[str, Any]]:
    """Return the rows of a spec, each with a column `prompt`; `key` is the config key that holds it."""
    name, _, behind = spec.partition(":")
    argument, _, wanted = behind.rpartition("@") if "@" in behind else (behind, "@", str(USUAL))
    found = _RANGE.fullmatch(wanted.strip())
    first, last = (int(found[1] or 1), int(found[2])) if found else (1, 0)
    if not first <= last <= MOST:
        example = f"{name}:{argument or behind}@1000 or {name}:{argument or behind}@1001-1100"
        raise UserError(f"{key}={spec}: say how many rows to make, or from which to which: {example}")
    try:
        rows: list[dict[str, Any]] = ROWS.find(name)(argument, range(first, last + 1))
    except UserError as error:
        raise UserError(f"{key}={spec}: {error}") from error
    return rows


def split_settings(argument: str) -> tuple[str, dict[str, Any]]:
    """Return name and settings of `NAME?key=value&key=value`; values are read as JSON, or else as text."""
    name, _, query = argument.partition("?")
    settings = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"{part!r} is no setting: write them as {name}?key=value&key=value")
        settings[key] = _value(value)
    return name, settings


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
