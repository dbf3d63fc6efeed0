"""Write another system's command as a commented config of whet."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whet.compat.checking import config_problems, module_name
from whet.compat.commented import Line, commented, wrapped
from whet.compat.merging import merge_arguments
from whet.compat.run import understood
from whet.compat.systems import System
from whet.compat.translate import written
from whet.compat.translation import Remark, Setting, Translation
from whet.config.describe import diff
from whet.config.loading.load import load
from whet.config.schema import all_keys
from whet.config.secrets import LEFT_OUT, masked
from whet.config.values import show
from whet.errors import UserError


@dataclass(frozen=True)
class Call:
    """One call of a system's main: as a script makes it, or as a user writes it."""

    module: str
    arguments: list[str]
    folder: Path  # it runs in
    launcher: tuple[str, ...] = ()  # options of torchrun


@dataclass(frozen=True)
class Migrated:
    """A call as a file for whet; a model merger is a command and needs none."""

    call: Call
    job: str
    translation: Translation | None
    command: list[str]  # that does here what the call does, without the name of the file

    def run_line(self, file: str) -> str:
        """Return the command line that runs the file."""
        return shlex.join([*self.command, *([f"config={file}"] if self.translation else [])])


def migrate(system: System, call: Call, fixed: bool = False) -> Migrated:
    """Translate a call as `whet as` does."""
    entry = system.entry(module_name(call.module))
    if entry is None:
        raise UserError(f"{call.module}: no main of {system.title} that whet runs")
    if entry.compose is None:
        return Migrated(call, entry.job, None, ["whet", "merge", *merge_arguments(call.arguments)])
    made = understood(system, entry, call.arguments, call.folder, fixed, bool(call.launcher))
    start = ["torchrun", *call.launcher, "-m", "whet"] if call.launcher else ["whet"]
    return Migrated(call, entry.job, made, [*start, entry.job])


def file_text(system: System, migrated: Migrated, name: str) -> str:
    """Return the config as YAML: original keys behind the lines, and what sets nothing here as comments."""
    made = migrated.translation
    assert made is not None
    settings = {key: _line(system, setting, made) for key, setting in made.settings.items()}
    lines = [
        f"# {migrated.call.module} of {system.title}, written by `whet migrate`.",
        f"# Run: {migrated.run_line(name)}",
        f"# Behind each line: the key of {system.title} it comes from.",
    ]
    if migrated.call.folder != Path.cwd():
        lines.append(f"# Relative paths start from {migrated.call.folder}, where the script makes this call.")
    if any(LEFT_OUT in str(line.value) for line in settings.values()):
        lines.append(f"# A secret is not copied: replace {LEFT_OUT}, best by ${{oc.env:NAME}}.")
    lines += _comments(f"Refused by {system.title} too", made.original)
    lines += _comments("Not here; the file leaves these out", map(str, map(_safe, made.refused)))
    lines += ["", *commented(settings)]
    lines += _comments("Different here", made.notes)
    lines += _comments("No effect here", map(str, map(_safe, made.no_effect)))
    return "\n".join(lines) + "\n"


def _line(system: System, setting: Setting, made: Translation) -> Line:
    value = masked(setting.value, setting.key, LEFT_OUT)
    if value is not None and setting.key in all_keys() and all_keys()[setting.key].kind == "str":
        value = written(value)  # as an argument: -1 is a text where a text is expected
    if not setting.sources:
        return Line(value, f"computes as {system.title} does" if setting.key == "algorithm.match" else "")
    origin = ", ".join(_origin(source, made) for source in setting.sources)
    return Line(value, origin if setting.given else f"default of {system.title}: {origin}")


def _origin(source: str, made: Translation) -> str:
    known = source in made.values
    return f"{source}={show(masked(made.values[source], source))}" if known else source


def _safe(remark: Remark) -> Remark:
    return Remark(remark.key, masked(remark.value, remark.key), remark.says)


def _comments(title: str, sentences: Iterator[str] | map[str] | list[str]) -> list[str]:
    found = [line for sentence in sentences for line in wrapped(sentence, "#   ")]
    return ["", f"# {title}:", *found] if found else []


def diff_lines(migrated: Migrated, file: Path) -> tuple[list[str], list[str], list[str]]:
    """Return `key: whet's default -> value` of a written file, problems of its config, and files that are not here."""
    loaded = load([f"config={file}"])
    problems, missing = config_problems(migrated.job, loaded)
    return diff(loaded.config).splitlines(), problems, missing
