"""The config as text: every key with its help, keys by a word, what a file changes, and the page docs/config.md."""

from __future__ import annotations

import difflib
import functools
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from whet.config.keys import Key, get
from whet.config.loading.aliases import ALIASES
from whet.config.loading.replaced import DERIVED, PLANNED, REPLACED, reason_not_settable
from whet.config.schema import Config, all_keys, all_sections
from whet.config.values import bounds_in_words, show
from whet.errors import UserError

_FEWEST_COLUMNS = 30  # for help beside its key; with less room it stands below


def describe(config: Config | None = None, width: int | None = None) -> str:
    """Return every key with its type, its value (the default without a config) and its help, in aligned columns.

    Help is wrapped to `width` columns where one is given.
    """
    return _described(all_keys(), config or Config(), width)


def search(words: Sequence[str], config: Config | None = None, width: int | None = None) -> str:
    """Return those lines of `describe` whose key, help, choices or other names hold all words, in any case.

    Raises a `UserError` with close names if there are none.
    """
    wanted = [word.lower() for word in words]
    found = [name for name, text in _texts().items() if all(word in text for word in wanted)]
    known = [f"{word} {reason}" for word in words if (reason := reason_not_settable(word))]
    if found:
        return "\n".join([_described(found, config or Config(), width), *known])
    if known:
        raise UserError("\n".join(known))
    close = _close_names(wanted)
    hint = f"; close names: {', '.join(close)}" if close else "; `whet config` lists every key"
    raise UserError(f"no key, help or other name holds {' and '.join(map(repr, words))}{hint}")


def _texts() -> dict[str, str]:
    """Return what is searched, by key."""
    names: dict[str, list[str]] = {}
    for theirs, ours in ALIASES.items():
        names.setdefault(ours, []).append(theirs)
    return {name: " ".join([name, _help(key), *names.get(name, ())]).lower() for name, key in all_keys().items()}


def _close_names(words: Sequence[str]) -> list[str]:
    leaves: dict[str, str] = {}
    for name in all_keys():
        leaves.setdefault(name.rpartition(".")[2], name)
    found = [leaves[leaf] for word in words for leaf in difflib.get_close_matches(word, leaves, n=3)]
    whole = [name for word in words for name in difflib.get_close_matches(word, all_keys(), n=3)]
    return list(dict.fromkeys([*found, *whole]))[:5]


def _described(names: Sequence[str] | dict[str, Key], config: Config, width: int | None) -> str:
    shown = config.stored()
    lines = []
    for section, keys in _groups():
        rows = [(key.name, key.type_name, show(_at(shown, key.name)), _help(key)) for key in keys if key.name in names]
        if rows:
            lines += ["", *_wrapped(f"{section}: {all_sections()[section]}", "", "  ", width), *_rows(rows, width)]
    return "\n".join(lines[1:]) + "\n"


def _rows(rows: Sequence[tuple[str, str, str, str]], width: int | None) -> Iterator[str]:
    """Yield a line for each key, with its help beside it, or below where there is too little room for that."""
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    beside = 2 + sum(widths) + 3 * 2
    for row in rows:
        if width is None or width - beside >= _FEWEST_COLUMNS:
            yield from _wrapped(row[3], "  " + "  ".join([*map(str.ljust, row[:3], widths), ""]), " " * beside, width)
        else:
            yield from _wrapped("  ".join(row[:3]), "  ", "    ", width)
            yield from _wrapped(row[3], "      ", "      ", width)


def _wrapped(text: str, first: str, others: str, width: int | None) -> list[str]:
    if width is None:
        return [first + text]
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def diff(config: Config) -> str:
    """Return one line `key: default -> value` per key that is not at its default."""
    rows = ((key, get(config, name)) for name, key in all_keys().items())
    stored = config.stored()
    return "".join(
        f"{key.name}: {show(key.default)} -> {show(_at(stored, key.name))}\n"
        for key, value in rows
        if value != key.default
    )


def reference() -> str:
    """Return the text of docs/config.md."""
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
    lines += ["", "## Names of features to come", "", "Known, and refused as such wherever they stand in a name.", ""]
    lines += ["| part of a name | feature |", "|---|---|"]
    lines += [f"| `{part}` | {feature} |" for part, feature in PLANNED.items()]
    return "\n".join(lines) + "\n"


INTRODUCTION = """# Config reference

<!-- Written by `python -m whet.config > docs/config.md`; a test compares the two. -->

A run reads its settings in this order, later ones winning: the defaults below, the file of `config=FILE`, then each
`key=value` argument. A YAML file alone means `config=`.

    whet train config=run.yaml worker.rollout.n=8 worker.actor.optim.lr=2e-6
    whet train run.yaml

Without a file, `whet train` and `whet sft` run their built-in quickstart, as long as none of data.train_files,
data.val_files, worker.actor.model.model_path and worker.reward.reward_function is given. With one of these the task is
your own: the run starts from the defaults below, and nothing of the quickstart is taken over. Every job prints what it
started from and its main settings first.

`whet config` prints this list, `whet config WORD` the keys that have a word in their name or help, `whet config --diff
config=run.yaml` what a file changes. All mistakes of a config are reported at once. In a file the dots are
nesting, and `${data.seed}` stands for another key's value. Write `null` for no value. A path is looked for from where
the command runs, then from the folder of the config file. A file may stand on another: `extends: base.yaml` at its top
reads that one first (relative to the file), and what the file says itself wins. `extends: [one.yaml, two.yaml]` reads
several, later ones winning; `whet/quickstart.yaml` is one of the examples that come with whet."""


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
