"""From `path.py:function` to a function: find the file, run it as its own module, pick the function out of it.

A name without a path is a scorer (whet/rewards/scorers/); an empty spec chooses one by each row's data source.

`path.pickle:function` is a function of a notebook or a closure, which the Python API has pickled by value.

Reading happens in the trainer (once, so that editing the file does not change a run that is under way); running happens
only in worker processes.
"""

from __future__ import annotations

import difflib
import pickle
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from whet.errors import UserError

KEY = "worker.reward.reward_function"
KWARGS_KEY = "worker.reward.reward_function_kwargs"
COMBINE_KEY = "worker.reward.combine"
DEFAULT_FUNCTION = "main"
PICKLE = ".pickle"


@dataclass(frozen=True, slots=True)
class RewardSource:
    """A reward file as it was when the run began, and the name of the function in it."""

    path: str
    function: str
    text: str
    pickled: bytes = b""  # the function itself, where the file holds it by value
    is_scorer: bool = False  # one of whet's own, which has no folder of the user's beside it


def is_scorer(spec: str) -> bool:
    """True for the name of a scorer, or for none at all; a path has a suffix, a slash or a colon."""
    return not spec or spec.isidentifier()


def read_source(spec: str, resolve: Callable[[str], Path] = Path) -> RewardSource:
    """Read the file that `path.py:function` names; `resolve` turns its path into one that exists."""
    if is_scorer(spec):
        return _scorer_source(spec)
    file, colon, function = spec.rpartition(":")
    if not colon or function.endswith(".py"):
        file, function = spec, DEFAULT_FUNCTION
    if not function.isidentifier():
        raise UserError(f"{KEY}={spec}: {function!r} cannot be the name of a function; write path.py:function")
    path = Path(resolve(file))
    if not path.is_file():
        raise UserError(
            f"{KEY}={spec}: there is no file {path}; give the path of a Python file, as in path.py:function"
        )
    try:
        if path.suffix == PICKLE:
            return RewardSource(str(path.resolve()), function, "", path.read_bytes())
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{KEY}={spec}: {path} cannot be read: {error}") from error
    return RewardSource(str(path.resolve()), function, text)


def _scorer_source(name: str) -> RewardSource:
    """A module that holds the scorer of this name, or the dispatch on data sources, as its function."""
    from whet.rewards.dispatch import check_needs

    if name:
        check_needs(name)
    function = name or "by_data_source"
    made = f"scorer_named({name!r})" if name else "by_data_source()"
    text = f"from whet.rewards import dispatch\n\n{function} = dispatch.{made}\n"
    return RewardSource(f"whet.rewards.scorers.{name}".rstrip("."), function, text, is_scorer=True)


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
    near = difflib.get_close_matches(source.function, own, n=1)
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
