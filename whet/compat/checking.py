"""Check a command of another system without running it: what it is here, and what keeps it from starting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from whet.compat.systems import Entry, System, system_of
from whet.compat.translate import arguments_of, translate
from whet.compat.translation import Setting, Translation
from whet.config.checks.required import DATA_CHECKS, model_set
from whet.config.checks.run import Check, run_checks
from whet.config.jobs import JOBS, problems_of
from whet.config.loading.load import Loaded, load
from whet.errors import UserError

_OPTIONS = {"nproc_per_node": "trainer.n_gpus_per_node", "nnodes": "trainer.nnodes"}  # of torchrun
_NAMES: tuple[Check, ...] = (model_set, *DATA_CHECKS)


class Verdict(StrEnum):
    """Outcome of a check."""

    ACCEPTED = "accepted"
    ORIGINAL = "refused by the original too"
    REFUSED = "refused here"
    UNKNOWN = "not known"


@dataclass
class Checked:
    """A command with its translation and every problem that was found."""

    system: str
    module: str
    arguments: list[str]
    name: str = ""
    translation: Translation | None = None
    config: list[str] = field(default_factory=list)  # problems of whet's config
    missing: list[str] = field(default_factory=list)  # files and models that are not here

    @property
    def verdict(self) -> Verdict:
        """Whether the command would start here, files aside."""
        if self.translation is None:
            return Verdict.UNKNOWN
        if self.translation.original:
            return Verdict.ORIGINAL
        return Verdict.REFUSED if self.translation.refused or self.config else Verdict.ACCEPTED

    @property
    def reasons(self) -> list[str]:
        """Sentences that belong to the verdict."""
        if self.translation is None:
            return self.config
        if self.translation.original:
            return self.translation.original
        return [*map(str, self.translation.refused), *self.config]


def module_name(text: str) -> str:
    """Return the module of `torchrun verl.trainer.x`, as lists of commands write it."""
    return text.split()[-1] if text.split() else ""


def check_command(
    system: str,
    module: str,
    arguments: list[str],
    folder: Path,
    extra: list[str] | None = None,
    name: str = "",
    launcher: Sequence[str] = (),
) -> Checked:
    """Translate a command and run every check of keys and files; nothing is loaded or written.

    `launcher` has the options of torchrun that start the command, of which the number of processes counts.
    """
    checked = Checked(system, module, arguments, name)
    known: System = system_of(system)
    entry = known.entry(module_name(module))
    if entry is None:
        checked.config.append(f"{module}: no main of {known.title} that whet runs")
        return checked
    if entry.compose is None:
        checked.translation = Translation(system, entry.job)
        return checked
    try:
        checked.translation = translate(known, entry, arguments, folder)
        checked.missing += checked.translation.missing
        for key, count in processes(launcher).items():
            checked.translation.settings[key] = Setting(key, count, ("torchrun",), True)
        _check_config(checked, entry, extra or [])
    except UserError as error:
        checked.config.append(str(error))
    return checked


def processes(launcher: Sequence[str]) -> dict[str, int]:
    """Return devices by the options of torchrun; a number that it finds out itself (`auto`, 1:4) is left out."""
    made = {}
    for at, option in enumerate(launcher):
        name, equals, value = option.partition("=")
        key = _OPTIONS.get(name.lstrip("-").replace("-", "_"))
        text = value if equals else "".join(launcher[at + 1 : at + 2])
        if key and text.isdecimal() and int(text) > 0:
            made[key] = int(text)
    return made


def _check_config(checked: Checked, entry: Entry, extra: list[str]) -> None:
    assert checked.translation is not None
    problems, missing = config_problems(entry.job, load([*arguments_of(checked.translation), *extra]))
    checked.config += problems
    checked.missing += missing


def config_problems(name: str, loaded: Loaded) -> tuple[list[str], list[str]]:
    """Return what is wrong with the config of a job, and which files and models it names are not here."""
    job = JOBS[name]
    checks = tuple(check for check in job.checks if check not in _NAMES)
    problems = problems_of(loaded, checks, job.view)
    return problems, [] if loaded.problems else run_checks((*_names(name), *job.files), job.view(loaded.config))


def _names(job: str) -> tuple[Check, ...]:
    """Return checks that a model and data are named, of which a script's variables may name none on this machine."""
    return _NAMES if job in ("train", "sft") else (model_set,) if job == "generate" else ()
