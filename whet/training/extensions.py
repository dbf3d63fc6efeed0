"""`algorithm.extensions`: files of the user's that register advantages and policy losses.

A file ends in `.py`, or in `.pickle`: then it holds functions that a notebook has registered, written by the Python API
so that ranks and later processes find them.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from whet.algos import advantage, find_advantage, find_policy_loss, policy_loss, registered_outside
from whet.config import Config, resolve_path
from whet.config.files import PICKLE
from whet.errors import UserError
from whet.rewards.loading import add_import_folder

KEY = "algorithm.extensions"
Registered = dict[str, dict[str, Any]]  # by name: its functions, as `registered_outside` describes them
_WRITTEN_HERE: dict[Path, Registered] = {}


def load_extensions(config: Config) -> None:
    """Run the files, then see that the names that the config chose are there. Running a file again does no harm."""
    for spec in config.algorithm.extensions:
        path = resolve_path(config, spec).absolute()
        if path.suffix == PICKLE:
            _register(spec, path)
        else:
            _run(spec, path)
    try:
        find_advantage(config.algorithm.adv_estimator)
        find_policy_loss(config.worker.actor.loss_type)
    except UserError as error:
        files = ", ".join(config.algorithm.extensions)
        raise UserError(f"{error}; {KEY}=[{files}] registers nothing of that name" if files else str(error)) from None


def registered_here(config: Config) -> Registered:
    """Find the functions that the config chooses and that no file of `algorithm.extensions` has registered."""
    files = {str(resolve_path(config, spec).absolute()) for spec in config.algorithm.extensions}
    found = {}
    for name in (config.algorithm.adv_estimator, config.worker.actor.loss_type):
        functions = registered_outside(name)
        code = (getattr(each, "__code__", None) for each in functions.values())
        if functions and not any(each is not None and each.co_filename in files for each in code):
            found[name] = functions
    return found


def note_written(path: Path, found: Registered) -> None:
    """Remember that `path` holds copies of these functions: in this process the originals are used."""
    _WRITTEN_HERE[path] = found


def _register(spec: str, path: Path) -> None:
    """Register the functions of a pickled file, unless they are copies of what this process has registered itself."""
    originals = _WRITTEN_HERE.get(path)
    if originals and all(registered_outside(name) == functions for name, functions in originals.items()):
        return
    try:
        found: Registered = pickle.loads(path.read_bytes())
        for name, functions in found.items():
            if "advantage" in functions:
                advantage(name, needs=functions["needs"], group=functions["group"])(functions["advantage"])
            if "policy_loss" in functions:
                policy_loss(name, prepare=functions.get("prepare"))(functions["policy_loss"])
    except UserError:
        raise
    except Exception as error:  # unpickling imports what the functions use, and may raise anything
        raise UserError(f"{KEY}={spec}: cannot be loaded: {type(error).__name__}: {error}") from error


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
