"""From `path.py:function` to the text of its file.

A name without a path is a scorer (whet/rewards/scorers/); an empty spec chooses one by each row's data source.

`path.pickle:function` is a function of a notebook or a closure, which the Python API has pickled by value.

Reading happens in the trainer (once, so that editing the file does not change a run that is under way); running happens
only in worker processes (`loading.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
