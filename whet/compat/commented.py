"""Write settings as YAML with a comment behind each line."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from whet.config.schema import all_keys, all_presets

WIDTH = 120
# Texts that YAML reads back as texts without quotes: names, paths, hub ids.
_PLAIN = re.compile(r"(?:[A-Za-z_/]|\.{1,2}/|~/)[\w./@~-]*(?: [\w./@~-]+)*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "~", ".inf", ".nan", "inf", "nan", "infinity"}


@dataclass(frozen=True)
class Line:
    """A value with the comment that stands behind it."""

    value: Any
    comment: str


def commented(settings: Mapping[str, Line]) -> Iterator[str]:
    """Yield the lines of a YAML file: dotted keys as nested sections, in the order of the schema."""
    order = {key: at for at, key in enumerate(all_keys())}
    tree: dict[str, Any] = {}
    for key in sorted(settings, key=lambda key: _place(key, order)):
        *above, leaf = f"{key}.preset".split(".") if key in all_presets() else key.split(".")
        branch = tree
        for part in above:
            branch = branch.setdefault(part, {})
        branch[leaf] = settings[key]
    for at, (name, section) in enumerate(tree.items()):
        if at:
            yield ""
        yield from _lines(name, section, "")


def _place(key: str, order: Mapping[str, int]) -> int:
    """Return where a key stands in the schema; one below a mapping stands with it, a section where it begins."""
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in order:
            return order[name]
        below = [at for each, at in order.items() if each.startswith(f"{name}.")]
        if below:
            return min(below)
    return len(order)


def _lines(name: str, item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, Line):
        text = f"{indent}{name}: {scalar(item.value)}"
        comment = f"# {item.comment}" if item.comment else ""
        if len(text) + len(comment) + 2 <= WIDTH or not comment:
            yield f"{text}  {comment}".rstrip()
        else:
            yield from wrapped(item.comment, f"{indent}# ")
            yield text
        return
    yield f"{indent}{name}:"
    for child, below in item.items():
        yield from _lines(child, below, f"{indent}  ")


def wrapped(text: str, start: str) -> list[str]:
    """Return a comment on lines that begin with `start` and are not longer than the page."""
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False)


def scalar(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if is_plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and not isinstance(value, bool):
        return _number(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(scalar, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(str(name))}: {scalar(item)}' for name, item in value.items())}}}"
    return json.dumps(value)


def _number(value: float) -> str:
    """Return a float as YAML reads one: with a dot, also before an exponent."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"inf": ".inf", "-inf": "-.inf"}.get(str(value), ".nan")
    mantissa, letter, exponent = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{letter}{exponent}" if letter else repr(value)
