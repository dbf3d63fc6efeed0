"""From a name in the config to a factory of environments: `path.py:Class`, `package.module:Class`, `NAME:ARGUMENT`."""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whet.config.files import PICKLE
from whet.config.registry import read_file, said
from whet.config.schema.rollout import ENVS
from whet.envs.protocol import EnvFactory
from whet.envs.session import takes_seed
from whet.errors import UserError

KEY = ENVS.key
ARGS_KEY = "worker.rollout.env_args"


def env_factory(
    name: str, resolve: Callable[[str], Path] = Path, options: Mapping[str, Any] | None = None
) -> EnvFactory:
    """Return what makes an environment, called once for each sample; `options` are given to it as keywords."""
    made = _find(name, resolve)
    if not callable(made):
        raise UserError(f"{KEY}={name}: expected a class with reset and step, found a {type(made).__name__}")
    if inspect.isclass(made):
        missing = [each for each in ("reset", "step") if not callable(getattr(made, each, None))]
        if missing:
            raise UserError(f"{KEY}={name}: {made.__name__} has no method {' nor '.join(missing)}")
        _check_methods(name, made)
    options = dict(options or {})
    _check_options(name, made, options)
    _check_argument(name, options)
    return functools.partial(made, **options) if options else made


def _find(name: str, resolve: Callable[[str], Path]) -> Callable[..., Any]:
    first, colon, behind = name.partition(":")
    if first in ENVS.names:
        return functools.partial(ENVS.find(first), behind)
    if not colon:
        ENVS.find(name)  # raises with the names that there are
    return find_object(KEY, name, resolve, f", or one of {', '.join(ENVS.names)}")  # type: ignore[no-any-return]


def _check_argument(name: str, options: Mapping[str, Any]) -> None:
    """Let an adapter refuse its argument and options before the run: one may have `check(argument, **options)`."""
    first, _, argument = name.partition(":")
    check = getattr(ENVS.find(first), "check", None) if first in ENVS.names else None
    try:
        if check is not None:
            check(argument, **options)
    except UserError as error:
        raise UserError(f"{KEY}={name}: {error}") from error


def find_object(key: str, name: str, resolve: Callable[[str], Path] = Path, others: str = "") -> Any:
    """Return what `path.py:name` or `package.module:name` stands for; `others` says what else `key` may be."""
    path, _, attribute = name.rpartition(":")
    if path.endswith(".py"):
        return read_file(f"{key}={name}", Path(resolve(path)).absolute(), attribute)
    if path.endswith(PICKLE):
        return _unpickled(key, name, Path(resolve(path)))
    return _of_module(key, name, path, attribute, others)


def _unpickled(key: str, name: str, path: Path) -> Any:
    try:
        return pickle.loads(path.read_bytes())
    except Exception as error:  # unpickling imports what the class uses, and may raise anything
        raise UserError(f"{key}={name}: cannot be loaded: {said(error)}") from error


def _of_module(key: str, name: str, module: str, attribute: str, others: str) -> Any:
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise UserError(f"{key}={name}: expected path.py:NAME or package.module:NAME{others}")
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise UserError(f"{key}={name}: {module} cannot be imported: {said(error)}") from error
    if not hasattr(found, attribute):
        raise UserError(f"{key}={name}: {module} defines no {attribute}")
    return getattr(found, attribute)


def _check_methods(name: str, made: type) -> None:
    """Refuse a class whose `reset` or `step` cannot be called as it will be."""
    calls = {"reset": "reset(self, prompt) or reset(self, prompt, seed)", "step": "step(self, action)"}
    for method, form in calls.items():
        function = getattr(made, method)
        own = () if isinstance(inspect.getattr_static(made, method), staticmethod | classmethod) else (None,)
        seed = {"seed": 0} if method == "reset" and takes_seed(function) else {}
        try:
            inspect.signature(function).bind(*own, None, **seed)
        except ValueError:  # of a class in C
            continue
        except TypeError as error:
            hint = "; prompt.extra has the columns of the row" if method == "reset" else ""
            raise UserError(f"{KEY}={name}: {method} must take {form}: {error}{hint}") from None


def _check_options(name: str, made: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that the class does not take, and a class that needs more."""
    try:
        signature = inspect.signature(made)
    except (TypeError, ValueError):  # of a class in C
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        given = ", ".join(options) or "none"
        raise UserError(f"{KEY}={name}: its constructor does not take {ARGS_KEY} ({given}): {error}") from None
