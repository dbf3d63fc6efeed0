"""`Logger`, the interface of every logger, `RunInfo`, what it is told about the run, and loggers by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from whet.checkpoint.durable import write_text
from whet.config.schema.trainer import LOGGERS
from whet.errors import UserError
from whet.tracking.console import Console
from whet.types import Sample

METHODS = ("log", "table", "close")
_Maker = TypeVar("_Maker", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run as loggers see it."""

    folder: Path
    project: str
    experiment: str
    console: Console
    settings: dict[str, Any] = field(default_factory=dict)  # the whole config, for trackers that show it

    def recall_id(self, logger: str) -> str | None:
        """The id under which this run folder is known to a tracker, when an earlier start noted one."""
        note = self._id_file(logger)
        return note.read_text(encoding="utf-8").strip() if note.exists() else None

    def note_id(self, logger: str, identity: str) -> None:
        """Remember a tracker's id in the run folder, so that a resumed run continues the same curve."""
        write_text(self._id_file(logger), identity + "\n")

    def _id_file(self, logger: str) -> Path:
        return self.folder / f".{logger}_run_id"


class Logger(Protocol):
    """A destination of metrics, built with a `RunInfo` before training starts.

    Building may fail, with a `UserError`. An error while training is reported once and does not stop the run. A class
    that derives from this one need not define every method.
    """

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of one step; all of them are finite or not, as they come."""

    def table(self, step: int, samples: Sequence[Sample]) -> None:
        """Show a few generations of a validation."""

    def close(self) -> None:
        """Flush what is buffered."""


def require(package: str, extra: str) -> ModuleType:
    """Import a logger's package, or say how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            f"trainer.logger: {extra} needs a package that is not installed ({error}). "
            f"Run: pip install 'whet[{extra}]', or take {extra} out of trainer.logger."
        ) from error


def logger(name: str) -> Callable[[_Maker], _Maker]:
    """Register a class, or a function that makes a `Logger` of a `RunInfo`, under a name for `trainer.logger`.

    The name is known in this process, or in runs whose `algorithm.extensions` has the file.
    """
    if not isinstance(name, str):
        raise UserError('a logger is registered with its name in parentheses: @whet.logger("mine")')

    def keep(maker: _Maker) -> _Maker:
        LOGGERS.register(name, maker)
        return maker

    return keep


def open_logger(name: str, run: RunInfo, resolve: Callable[[str], Path] = Path) -> Logger:
    """Build the logger of a name; `resolve` finds the file of `path.py:CLASS`. A `UserError` if it cannot start."""
    path = name.rpartition(":")[0]
    make = LOGGERS.find(name, resolve(path) if path else None)
    if not callable(make):
        raise UserError(f"{LOGGERS.key}: {name} is of type {type(make).__name__}; it must be a class of loggers")
    try:
        made = make(run)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{LOGGERS.key}: {name} could not start: {short(error)}. "
            f"Log in or set it up as its documentation says, or take {name} out of {LOGGERS.key}."
        ) from error
    missing = [method for method in METHODS if not callable(getattr(made, method, None))]
    if missing:
        raise UserError(
            f"{LOGGERS.key}: {name} makes a {type(made).__name__} without {', '.join(missing)}; derive its class from "
            "whet.Logger, or define them"
        )
    return made


def short(error: Exception) -> str:
    """Return an error's type and the first line of its text."""
    return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
