"""Check a list of commands in one process: how much of a collection of scripts would run here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.compat.checking import Checked, Verdict, check_command
from whet.compat.systems import SYSTEMS
from whet.compat.translate import arguments_of
from whet.errors import UserError

_FIELDS = "system, module and args (a list of texts), and script for its name"
_MOST = 3  # sentences of a command that the table shows


def read_commands(file: Path) -> list[dict[str, Any]]:
    """Read a JSON list of commands; a `UserError` says which entry is wrong."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{file}: cannot be read as JSON: {error}") from error
    if not isinstance(found, list):
        raise UserError(f"{file}: expected a list of commands with {_FIELDS}")
    for at, entry in enumerate(found):
        good = isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in ("system", "module"))
        arguments = entry.get("args") if good else None
        if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
            raise UserError(f"{file}: entry {at} is no command with {_FIELDS}")
        if entry["system"] not in SYSTEMS:
            raise UserError(f"{file}: entry {at}: system {entry['system']!r} is not one of {', '.join(SYSTEMS)}")
    return found


def check_all(commands: list[dict[str, Any]], folder: Path) -> list[Checked]:
    """Check every command as if it was run in `folder`."""
    return [
        check_command(each["system"], each["module"], each["args"], folder, name=str(each.get("script", "")))
        for each in commands
    ]


def table_lines(checked: list[Checked]) -> Iterator[str]:
    """Yield commands that do not pass with their reasons, then a table by system."""
    for each in checked:
        if each.verdict is not Verdict.ACCEPTED:
            yield f"{each.system} {each.name or each.module}: {each.verdict}"
            yield from (f"  {reason}" for reason in each.reasons[:_MOST])
            if len(each.reasons) > _MOST:
                yield f"  and {len(each.reasons) - _MOST} more"
    yield ""
    head = ["system", "commands", *Verdict, "files not here"]
    rows = [head]
    for name in SYSTEMS:
        own = [each for each in checked if each.system == name]
        counts = Counter(each.verdict for each in own)
        if own:
            missing = sum(bool(each.missing) for each in own)
            rows.append([name, str(len(own)), *(str(counts[verdict]) for verdict in Verdict), str(missing)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def as_json(checked: list[Checked]) -> list[dict[str, Any]]:
    """Return what was found, for programs."""
    made = []
    for each in checked:
        entry: dict[str, Any] = {
            "system": each.system,
            "script": each.name,
            "module": each.module,
            "verdict": str(each.verdict),
            "reasons": each.reasons,
            "missing": each.missing,
        }
        if each.translation is not None:
            entry |= {
                "job": each.translation.job,
                "arguments": arguments_of(each.translation),
                "no_effect": [str(remark) for remark in each.translation.no_effect],
                "notes": each.translation.notes,
            }
        made.append(entry)
    return made


def exit_code(checked: list[Checked]) -> int:
    """Return 0 if every command that its own system accepts passes here, else 2."""
    return 2 if any(each.verdict in (Verdict.REFUSED, Verdict.UNKNOWN) for each in checked) else 0
