"""Run one main of another system as a job of whet."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whet.compat.report import report_lines
from whet.compat.systems import Entry, System, system_of
from whet.compat.translate import arguments_of, translate
from whet.compat.translation import Translation
from whet.config.problems import raise_problems
from whet.errors import UserError

_DEVICES = ("trainer.nnodes", "trainer.n_gpus_per_node")


@dataclass(frozen=True)
class Job:
    """A job of whet with its arguments."""

    name: str
    arguments: list[str]
    translation: Translation | None = None


def job_of(
    system: str, module: str, arguments: list[str], fixed: bool, settings: list[str], under_torchrun: bool
) -> Job:
    """Return the job that a call is; a `UserError` lists what keeps it from running."""
    known = system_of(system)
    entry = known.entry(module)
    if entry is None:
        raise UserError(f"{module}: no main of {known.title} that whet runs")
    if entry.compose is None:
        from whet.compat.merging import merge_arguments

        return Job("merge", merge_arguments(arguments))
    made = understood(known, entry, arguments, Path.cwd(), fixed, under_torchrun)
    raise_problems([f"{known.title} refuses this command too: {reason}" for reason in made.original])
    raise_problems(map(str, made.refused))
    return Job(entry.job, [*arguments_of(made), *settings], made)


def understood(
    system: System, entry: Entry, arguments: list[str], folder: Path, fixed: bool, under_torchrun: bool
) -> Translation:
    """Return the translation of a call as it is run; torchrun decides on the devices, and without it sft has one."""
    made = translate(system, entry, arguments, folder, fixed)
    if under_torchrun or entry.job == "sft":
        for key in _DEVICES:
            made.settings.pop(key, None)
    return made


def show_report(job: Job, say: Callable[[str], None]) -> None:
    """Print what the call was understood as, once."""
    if job.translation is None or int(os.environ.get("LOCAL_RANK", "0") or 0) > 0:
        return
    say(f"as {job.translation.system}: whet {job.name}, algorithm.match={_match(job.translation)}")
    for line in report_lines(job.translation, full=False):
        say(f"  {line}")


def _match(made: Translation) -> str:
    found = made.settings.get("algorithm.match")
    return str(found.value) if found else "whet"
