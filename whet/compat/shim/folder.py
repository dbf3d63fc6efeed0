"""Make the folder of programs and the environment that leads to it."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from whet.compat.systems import System

VARIABLE = "WHET_AS"
PROGRAMS = ("python", "python3", f"python3.{sys.version_info.minor}", "torchrun", "ray")
_INTERCEPT = Path(__file__).with_name("intercept.py")


@dataclass(frozen=True)
class Shim:
    """Environment of a command whose calls are intercepted."""

    environment: dict[str, str]
    record: Path | None  # file with the calls, a line of JSON each; None where they are run


@contextmanager
def shimmed(system: System, options: list[str], record: bool = False) -> Iterator[Shim]:
    """Yield an environment in which the mains of a system are whet's; the folder goes when the block ends.

    `options` are those of `whet as` that each call gets. With `record` calls are written down and nothing is run.
    """
    with tempfile.TemporaryDirectory(prefix="whet-as-") as made:
        folder = Path(made)
        log = folder / "calls.jsonl" if record else None
        for name in PROGRAMS:
            program = folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(
                f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(_INTERCEPT))} {name} "$@"\n'
            )
            program.chmod(0o755)
        told = {
            "system": system.name,
            "modules": [module for entry in system.entries for module in entry.modules],
            "options": options,
            "python": sys.executable,
            "bin": str(folder / "bin"),
            "record": str(log) if log else None,
        }
        yield Shim(_environment(told, folder / "bin"), log)


def _environment(told: Mapping[str, object], folder: Path) -> dict[str, str]:
    """Return this process' environment with the folder first, and functions for scripts that change the PATH."""
    made = dict(os.environ) | {VARIABLE: json.dumps(told)}
    made["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    for name in PROGRAMS:  # `conda activate` puts other programs first; an exported function of bash still wins
        made[f"BASH_FUNC_{name}%%"] = f'() {{ {shlex.quote(str(folder / name))} "$@"; }}'
    return made
