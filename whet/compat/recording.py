"""Run a script with its calls of python, torchrun and ray written down instead of run."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from whet.compat.shim import shimmed
from whet.compat.systems import System
from whet.errors import UserError


@dataclass(frozen=True)
class Recorded:
    """Calls of a system's mains, other programs that were left out, and how the script ended."""

    entries: list[dict]
    others: list[dict]
    code: int


def record(system: System, command: list[str]) -> Recorded:
    """Run a command so that calls of python, torchrun and ray do nothing; everything else in it does happen.

    Variables that the calls name by `${oc.env:NAME}` are set in this process as the script has left them.
    """
    with shimmed(system, [], record=True) as shim:
        try:
            code = subprocess.call(command, env=shim.environment)
        except OSError as error:
            raise UserError(f"{command[0]}: cannot be run: {error.strerror}") from error
        assert shim.record is not None
        lines = shim.record.read_text(encoding="utf-8").splitlines() if shim.record.is_file() else []
    calls = [json.loads(line) for line in lines]
    for call in calls:
        os.environ.update(call.get("variables", {}))
    return Recorded([call for call in calls if call["entry"]], [call for call in calls if not call["entry"]], code)


def none_called(system: System, recorded: Recorded) -> UserError:
    """Return the error of a script that called no main of a system."""
    called = [name for call in recorded.others if (name := _main_named(call["args"]))]
    mains = ", ".join(entry.modules[0] for entry in system.entries)
    named = f"; it called {', '.join(dict.fromkeys(called))}, and whet runs {mains}" if called else ""
    failed = "; what the script wants behind its name goes there here too" if recorded.code else ""
    return UserError(f"the script called no main of {system.title} (it ended with code {recorded.code}){named}{failed}")


def _main_named(arguments: list[str]) -> str:
    """Return the module or file of a call of python if it is named as mains and trainers are."""
    target = next((each for each in arguments if not each.startswith("-")), "")
    return target if re.search(r"(main|train|merge)\w*(\.py)?$", target) else ""


def script_command(arguments: list[str]) -> list[str]:
    """Return the command that runs a script: itself where it can be run, bash otherwise."""
    script = Path(arguments[0])
    if script.suffix in (".sh", ".bash") or (script.is_file() and not _is_program(script)):
        return ["bash", *arguments]
    return arguments


def _is_program(script: Path) -> bool:
    return os.access(script, os.X_OK)
