"""`algorithm.extensions`: files of the user's that register advantages and policy losses."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType

from whet.algos import find_advantage, find_policy_loss
from whet.config import Config, resolve_path
from whet.errors import UserError
from whet.rewards.function import add_import_folder

KEY = "algorithm.extensions"


def load_extensions(config: Config) -> None:
    """Run the files, then see that the names that the config chose are there. Running a file again does no harm."""
    for spec in config.algorithm.extensions:
        _run(spec, resolve_path(config, spec).absolute())
    try:
        find_advantage(config.algorithm.adv_estimator)
        find_policy_loss(config.worker.actor.loss_type)
    except UserError as error:
        files = ", ".join(config.algorithm.extensions)
        raise UserError(f"{error}; {KEY}=[{files}] registers nothing of that name" if files else str(error)) from None


def _run(spec: str, path: Path) -> None:
    """Run a file as a module of its own; files beside it can be imported by name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{KEY}={spec}: cannot be read: {error}") from error
    add_import_folder(str(path.parent))
    name = f"whet_extension_{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickle look their module up by name
    try:
        exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        raise UserError(f"{KEY}={spec}{_line(error, str(path))}: {what}") from error


def _line(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f", line {lines[-1]}" if lines else ""
