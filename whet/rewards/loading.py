"""Run a reward file as its own module, and pick the function out of it; only worker processes do."""

from __future__ import annotations

import difflib
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from whet.errors import UserError
from whet.rewards.function import KEY, RewardSource


def load_module(source: RewardSource) -> ModuleType:
    """Run the file as a module of its own; files beside it can be imported by name."""
    if not source.is_scorer:
        add_import_folder(str(Path(source.path).parent))
    name = f"whet_reward_{Path(source.path).stem}"
    module = ModuleType(name)
    module.__file__ = source.path
    sys.modules[name] = module  # dataclasses and pickle look their module up by name
    try:
        if source.pickled:
            setattr(module, source.function, pickle.loads(source.pickled))
            return module
        exec(compile(source.text, source.path, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # a reward file may call sys.exit while it is imported
        raise UserError(f"{KEY}: {_where(error, source.path)}: {_last_line(error)}") from error
    return module


def find_function(module: ModuleType, source: RewardSource) -> Callable[..., Any]:
    """The function that the spec names, or an error that names the nearest ones."""
    function = getattr(module, source.function, None)
    if callable(function):
        return function
    if function is not None:
        raise UserError(f"{KEY}: {source.function} in {source.path} is {type(function).__name__}, not a function")
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    near = difflib.get_close_matches(source.function, own, n=1) or (own if len(own) == 1 else [])
    if near:
        hint = f"did you mean {source.path}:{near[0]}?"
    elif own:
        hint = f"it has {', '.join(own)}"
    else:
        hint = "it defines no function at all"
    raise UserError(f"{KEY}: {source.path} has no function {source.function}; {hint}")


def add_import_folder(folder: str) -> None:
    """Put the folder after the standard library: a user's file called math.py must not become `math`."""
    if folder not in sys.path:
        packages = (i for i, entry in enumerate(sys.path) if entry.endswith("-packages"))
        sys.path.insert(next(packages, len(sys.path)), folder)


def _where(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{path}:{lines[-1]}" if lines else path


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()[:500]
