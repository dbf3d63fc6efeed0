"""Functions of the caller, in a form that another process can load.

A function at the top level of an importable file becomes `path.py:function`. Anything else (a notebook cell, a lambda,
a closure, a bound method, a script's own function) is pickled by value with cloudpickle, with what it uses of its
module.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cloudpickle

from whet.errors import UserError

LARGEST = 32 << 20  # bytes of a pickled function: every worker process reads them when it starts
_DEPTH = 4  # how far a search for what cannot be pickled goes


def in_file(function: Callable[..., Any]) -> str | None:
    """Return `path.py:function` for a function or class that a file defines at its top level, else None.

    Not for functions of __main__, because reading the file again would run the script, nor for those of packages, whose
    relative imports need the package.
    """
    if not inspect.isfunction(function) and not inspect.isclass(function):
        return None
    name, module_name = function.__name__, function.__module__
    module = sys.modules.get(module_name) if isinstance(module_name, str) else None
    if not name.isidentifier() or module is None or module_name == "__main__":
        return None
    if getattr(module, name, None) is not function or module.__package__:
        return None
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or not os.path.isfile(file):
        return None
    if inspect.isfunction(function) and inspect.unwrap(function).__code__.co_filename != file:
        return None  # another file's, under this module's name
    return f"{os.path.abspath(file)}:{name}"


def pickled(value: Any, label: str) -> bytes:
    """Return a function, or a tree of them, pickled by value; a `UserError` names what cannot be pickled."""
    try:
        with _own_modules_by_value(value):
            content = cloudpickle.dumps(value)
    except Exception as error:
        found = _culprit(value, "", _DEPTH, set())
        what = f"{found[0]} is a {_kind(found[1])}" if found else f"{type(error).__name__}: {error}"
        raise UserError(
            f"{label} cannot be sent to another process: {what}, which cannot be copied. Create it inside the "
            "function, or put the function into a Python file of its own."
        ) from error
    if len(content) > LARGEST:
        raise UserError(
            f"{label} cannot be sent to another process: with the objects that it uses it has {len(content) >> 20} MB, "
            f"more than {LARGEST >> 20}. Load large objects inside the function, from a file."
        )
    return content


def name_of(function: Any) -> str:
    """Return the name of a function as people write it, in a form that is an identifier."""
    inner = function.func if isinstance(function, functools.partial) else function
    named = inspect.isroutine(inner) or inspect.isclass(inner)
    name = inner.__name__ if named else type(function).__name__
    return name if name.isidentifier() else "reward"


@contextmanager
def _own_modules_by_value(value: Any) -> Iterator[None]:
    """Pickle what functions use of the caller's own modules by value: a worker may not be able to import those."""
    names = {each.__module__ for each in _functions(value) if inspect.isroutine(each) or inspect.isclass(each)}
    modules = [sys.modules[name] for name in names if isinstance(name, str) and name in sys.modules]
    chosen = [
        each for each in modules if _is_own(each) and each.__name__ not in cloudpickle.list_registry_pickle_by_value()
    ]
    for module in chosen:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in chosen:
            cloudpickle.unregister_pickle_by_value(module)


def _functions(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _functions(each)
    elif callable(value):
        yield from (value.func, type(value.func)) if isinstance(value, functools.partial) else (value, type(value))


def _is_own(module: ModuleType) -> bool:
    """True for a module that neither Python nor a package installer has brought."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or not isinstance(file, str):
        return False
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    here = os.path.abspath(file)
    return not any(here.startswith(each + os.sep) for each in folders) and module.__name__.partition(".")[0] != "whet"


def _culprit(value: Any, name: str, depth: int, seen: set[int]) -> tuple[str, Any] | None:
    """Find the innermost object below `value` that cannot be pickled, with a name for it."""
    if id(value) in seen or _pickles(value):
        return None
    seen.add(id(value))
    if depth:
        for part, inner in _parts(value, name):
            found = _culprit(inner, part, depth - 1, seen)
            if found is not None:
                return found
    return (name, value) if name else None


def _parts(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the objects that pickling `value` would pickle too, each with a name."""
    inside = f" of {name}" if name else ""
    if inspect.ismethod(value):
        yield f"the object{inside} that {value.__name__} belongs to", value.__self__
    elif inspect.isfunction(value):
        code = value.__code__
        for variable, cell in zip(code.co_freevars, value.__closure__ or ()):
            try:
                yield f"its variable {variable}{inside}", cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        for variable in code.co_names:
            if variable in value.__globals__:
                yield f"its variable {variable}{inside}", value.__globals__[variable]
        yield from ((f"a default value{inside}", each) for each in value.__defaults__ or ())
        yield from ((f"the default of {key}{inside}", each) for key, each in (value.__kwdefaults__ or {}).items())
    elif isinstance(value, dict):
        yield from ((f"the entry {key!r}{inside}" if name else str(key), each) for key, each in value.items())
    elif isinstance(value, list | tuple | set):
        yield from ((f"an item{inside}", each) for each in value)
    else:
        if isinstance(value, functools.partial):
            for key in ("func", "args", "keywords"):
                yield f"its {key}{inside}", getattr(value, key)
        try:
            state = vars(value)
        except TypeError:  # an object without attributes of its own
            return
        yield from ((f"its attribute {key}{inside}", each) for key, each in state.items())


def _pickles(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
