"""Translate a command of another system: effective values there, rows and rules, settings here."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from whet.compat.compose import Composed
from whet.compat.keys.row import Kind, Row, Table
from whet.compat.rules.rule import RULES
from whet.compat.systems import Entry, System
from whet.compat.translation import Here, Remark, Setting, There, Translation
from whet.compat.values import SKIP, convert
from whet.config.keys import get, with_values
from whet.config.objectives import objective_settings
from whet.config.schema import Config, all_keys

_RULES = ("objective", "optimization", "sizes", "placement", "sampling", "rewards", "other_jobs", "rows", "easyr1")
_MOST_NAMES = 12  # unknown keys of a checkout that are listed
# Rules that read what others set come last, in this order.
_LATE = ("micro_batches", "megatron", "length", "correction", "staleness", "validation")


def translate(system: System, entry: Entry, arguments: list[str], folder: Path, fixed: bool = False) -> Translation:
    """Return what a command is here; `fixed` keeps whet's numbers where the system has slips."""
    assert entry.compose is not None
    composed = entry.compose(arguments, folder)
    made = Translation(
        system.name,
        entry.job,
        original=composed.refused,
        missing=composed.missing,
        notes=composed.notes,
        values=composed.values,
    )
    if composed.multirun:
        made.refused.append(Remark("--multirun", True, "several runs of one command are `whet sweep` here"))
    there = There(composed)
    here = Here(there, made)
    rules = _rows(entry.rows(), composed, made, here)
    if unknown := _unknown(entry.rows(), composed):
        here.note(unknown)
    for name in _RULES:
        import_module(f"whet.compat.rules.{name}")
    for name in sorted((*rules, *entry.rules), key=lambda name: _LATE.index(name) if name in _LATE else -1):
        RULES[name](there, here)
    made.refused += [Remark(key, there.values[key], says) for key, says in there.wrong.items()]
    _prune(made, system, fixed)
    return made


def _rows(table: Table, composed: Composed, made: Translation, here: Here) -> list[str]:
    """Apply rows that stand alone; return the rules of the others, in order."""
    rules: dict[str, None] = {}
    for key, value in composed.values.items():
        row = table.find(key, key not in composed.added)
        given = key in composed.given
        if row is None:
            if given and _is_off(value):
                made.no_effect.append(Remark(key, value, "not known here, and off"))
            elif given:
                made.refused.append(Remark(key, value, "not known here: whet has no key for it; leave it out"))
        elif row.rule:
            rules[row.rule] = None
        elif row.kind is Kind.MAPPED:
            if given or not row.given:
                _copy(row, key, value, made, here)
        elif row.kind is Kind.HARMLESS:
            if given:
                made.no_effect.append(Remark(key, value, row.says))
        elif _asks(row, key, value, composed):
            made.refused.append(Remark(key, value, row.says))
        elif given:
            made.no_effect.append(Remark(key, value, "asks for nothing"))
    return list(rules)


def _is_off(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def _unknown(table: Table, composed: Composed) -> str:
    """Return a sentence about keys that only the checkout's own file has and that nobody here knows; empty for none."""
    names = [
        key
        for key in sorted(composed.own - composed.given.keys())
        if table.find(key) is None and not _is_off(composed.values.get(key))
    ]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (
        f"the checkout's own file has keys that are not known here, and whatever they switch on is not here: "
        f"{', '.join(names[:_MOST_NAMES])}{more}"
        if names
        else ""
    )


def _copy(row: Row, key: str, value: Any, made: Translation, here: Here) -> None:
    converted = convert(row.value, value)
    if converted is SKIP:
        return
    if converted == "" and row.to and _kind(row.to[0]) == "bool":
        converted = False  # an empty text is no there
    for target in row.to:
        if here.has(target):
            here.set(target, converted, key)
        else:
            made.refused.append(Remark(key, value, f"{target} is not in this version yet"))


def _kind(key: str) -> str:
    return all_keys()[key].kind if key in all_keys() else ""


def _asks(row: Row, key: str, value: Any, composed: Composed) -> bool:
    """Return True if a key that whet does not have is set to something."""
    if value is None or value == "" or value == {} or value in row.neutral:
        return False
    if key in composed.defaults and composed.defaults[key] == value:
        return False
    return not row.when or bool(composed.values.get(row.when))


def _prune(made: Translation, system: System, fixed: bool) -> None:
    """Drop what the job does not use, and what is whet's default anyway."""
    if made.job == "train":
        made.settings["algorithm.match"] = Setting("algorithm.match", "whet" if fixed else system.name, (), False)
        if made.settings.get("algorithm.adv_estimator", Setting("", "grpo", (), False)).value != "gae":
            for key in [key for key in made.settings if key.startswith("worker.critic.")]:
                del made.settings[key]
            made.refused = [remark for remark in made.refused if not remark.key.startswith("critic.")]
    named = objective_settings(lambda key: made.settings[key].value if key in made.settings else None)
    defaults = with_values(Config(), named)
    for key, setting in list(made.settings.items()):
        default = get(defaults, key) if key in all_keys() else None
        if not setting.given and _plain(default) == _plain(setting.value):
            del made.settings[key]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def arguments_of(made: Translation) -> list[str]:
    """Return the settings as `key=value` arguments of whet's command."""
    return [f"{key}={written(setting.value)}" for key, setting in made.settings.items()]


def written(value: Any) -> str:
    """Return a value as an argument of the command line reads it back."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict | tuple):
        return json.dumps(value, ensure_ascii=False)
    return repr(value) if isinstance(value, float) else str(value)
