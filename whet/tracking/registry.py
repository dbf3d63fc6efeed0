"""Loggers by name: files of `tracking/loggers/`, registered ones, those of installed packages, and `path.py:CLASS`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from whet.config.schema.trainer import LOGGERS
from whet.errors import UserError
from whet.tracking.logger import Logger, RunInfo

METHODS = ("log", "table", "close")
_Maker = TypeVar("_Maker", bound=Callable[..., Any])


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
