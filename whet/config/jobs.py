"""The config of a job, from the arguments of its command: loaded, reduced to what the job reads, and checked.

All problems are reported at once: those of names and values, and those of every check that can still be evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from whet.config.checks.files import FILE_CHECKS
from whet.config.checks.run import Check, UnknownValueError, hide, run_checks
from whet.config.loading.load import Loaded, load
from whet.config.problems import raise_problems, sentences_of
from whet.config.schema import Config
from whet.errors import UserError

View = Callable[[Config], Config]


@dataclass(frozen=True)
class Job:
    """Config of a job: the part that it reads, and its checks."""

    name: str  # of its module in checks/, which holds NAME_CHECKS
    quickstart: str | None = None  # file in the examples that the command without arguments runs
    narrowed: bool = True  # views.py has its NAME_view

    @property
    def view(self) -> View:
        """The config without the keys that the job does not read."""
        if not self.narrowed:
            return lambda config: config
        return getattr(import_module("whet.config.views"), f"{self.name}_view")

    @property
    def checks(self) -> tuple[Check, ...]:
        """Checks of keys; imported when asked for, as those of other jobs are not needed."""
        return getattr(self._module, f"{self.name.upper()}_CHECKS")

    @property
    def files(self) -> tuple[Check, ...]:
        """Checks of paths."""
        return getattr(self._module, f"{self.name.upper()}_FILE_CHECKS", FILE_CHECKS)

    @property
    def _module(self) -> ModuleType:
        return import_module(f"whet.config.checks.{self.name}")


JOBS = {
    job.name: job
    for job in (
        Job("train", "quickstart.yaml", narrowed=False),
        Job("sft", "sft/quickstart.yaml"),
        Job("generate"),
        Job("eval"),
        Job("serve", narrowed=False),
        Job("chat"),
    )
}


def load_job(name: str, argv: list[str], examples: Path | None = None, adjust: View | None = None) -> Config:
    """Return the config of a job, or raise a `UserError` that lists everything that keeps it from starting.

    `examples` is the folder of the quickstarts; `adjust` is applied to the loaded config before it is checked.
    """
    job = JOBS[name]
    quickstart = examples / job.quickstart if examples is not None and job.quickstart is not None else None
    loaded = load(argv, quickstart)
    view = _chain(adjust, job.view)
    found = problems_of(loaded, (*job.checks, *job.files), view)
    note = ""
    if quickstart is not None and loaded.start.named and any(" is not set" in sentence for sentence in found):
        note = (
            f"{loaded.start.named[0]} is given and config= is not, so nothing is taken from the built-in quickstart; "
            f"config={quickstart} starts from it"
        )
    raise_problems(found, note)
    return view(loaded.config)


def problems_of(loaded: Loaded, checks: tuple[Check, ...], view: View, unknown: Iterable[str] = ()) -> list[str]:
    """Return every problem of what was loaded, and of its view by those checks that can still be evaluated.

    `unknown` names keys that have no value yet.
    """
    found = [problem.sentence for problem in loaded.problems]
    if any(problem.hides_all for problem in loaded.problems):
        return found
    hidden = {*unknown, *(key for problem in loaded.problems for key in problem.keys)}
    try:
        return found + run_checks(checks, view(hide(loaded.config, hidden)))
    except UnknownValueError:
        return found
    except UserError as error:  # of the view: the config cannot be adjusted
        return [*found, *sentences_of(error)]


def _chain(first: View | None, second: View) -> View:
    return second if first is None else lambda config: second(first(config))
