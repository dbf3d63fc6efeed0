"""The config as text: every key with its help, what a file changes, and the reference page docs/config.md."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from whet.config.keys import Key, get
from whet.config.loading.aliases import ALIASES
from whet.config.loading.replaced import DERIVED, REPLACED
from whet.config.schema import Config, all_keys, all_sections
from whet.config.values import bounds_in_words, show


def describe(config: Config | None = None) -> str:
    """Every key with its type, its value (the default without a config) and one line of help, in aligned columns."""
    shown = (config or Config()).stored()
    lines = []
    for name, keys in _groups():
        rows = [(key.name, key.type_name, show(_at(shown, key.name)), _help(key)) for key in keys]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines += ["", f"{name}: {all_sections()[name]}"]
        lines += ["  " + "  ".join([*map(str.ljust, row[:3], widths), row[3]]) for row in rows]
    return "\n".join(lines[1:]) + "\n"


def diff(config: Config) -> str:
    """One line `key: default -> value` per key that is not at its default."""
    rows = ((key, get(config, name)) for name, key in all_keys().items())
    stored = config.stored()
    return "".join(
        f"{key.name}: {show(key.default)} -> {show(_at(stored, key.name))}\n"
        for key, value in rows
        if value != key.default
    )


def reference() -> str:
    """The text of docs/config.md."""
    lines = [*INTRODUCTION.splitlines()]
    for name, keys in _groups():
        about = all_sections()[name]
        lines += ["", f"## {name}", "", f"{about[0].upper()}{about[1:]}.", ""]
        lines += ["| key | type | default | what it does |", "|---|---|---|---|"]
        lines += [
            f"| `{key.name}` | {key.type_name} | `{show(key.default)}` | {_help(key).replace('|', '/')} |"
            for key in keys
        ]
    lines += ["", "## Names from verl", "", "Accepted as other names of the same keys.", ""]
    lines += ["| verl | here |", "|---|---|"]
    lines += [f"| `{theirs}` | `{ours}` |" for theirs, ours in ALIASES.items()]
    lines += ["", "## Names that cannot be set", "", "Refused, with what to set instead.", ""]
    lines += ["| name | why |", "|---|---|"]
    lines += [f"| `{name}` | {reason} |" for name, reason in (DERIVED | REPLACED).items()]
    return "\n".join(lines) + "\n"


INTRODUCTION = """# Config reference

<!-- Written by `python -m whet.config > docs/config.md`; a test compares the two. -->

A run reads its settings in this order, later ones winning: the defaults below, the file of `config=FILE`, then each
`key=value` argument.

    whet train config=run.yaml worker.rollout.n=8 worker.actor.optim.lr=2e-6

`whet config` prints this list, `whet config --diff config=run.yaml` what a file changes. In a file the dots are
nesting, and `${data.seed}` stands for another key's value. Write `null` for no value. A path is looked for from where
the command runs, then from the folder of the config file. A file may stand on another: `extends: base.yaml` at its top
reads that one first (relative to the file), and what the file says itself wins."""


def _groups() -> Iterator[tuple[str, list[Key]]]:
    for section in all_sections():
        keys = [key for name, key in all_keys().items() if name.rpartition(".")[0] == section]
        if keys:
            yield section, keys


def _at(tree: Any, name: str) -> Any:
    return functools.reduce(lambda branch, part: branch[part], name.split("."), tree)


def _help(key: Key) -> str:
    limits = ", ".join(key.choices) if key.choices else bounds_in_words(key)
    return f"{key.help} ({limits})" if limits else key.help
