"""Functions that a decorator registers under one or more names, such as `@advantage("grpo", "grpo_vectorized")`.

Names and options of the built-in ones are read from the source, so that listing them imports neither their files nor
torch; the file of a function is imported when the function is asked for.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from whet.config.registry import Registry, package_folder
from whet.errors import UserError


@dataclass(frozen=True, slots=True)
class Declared:
    """One decorator in a file of the package: the module, and the options that are literals."""

    module: str
    options: dict[str, Any]


class FunctionRegistry(Registry):
    """Functions by name. Importing a file runs its decorators, which call `keep`."""

    def __init__(self, key: str, package: str, decorator: str, entry_points: str = "") -> None:
        """`decorator` is the name by which files of `package` call the decorator."""
        super().__init__(key, package, decorator, entry_points=entry_points)
        self._own: dict[str, Any] = {}  # built-in ones whose files were imported

    @functools.cached_property
    def declared(self) -> dict[str, Declared]:
        """Every built-in name, in alphabetical order, with the file and the options of its decorator."""
        found: dict[str, Declared] = {}
        for file in package_folder(self._package).glob("*.py"):
            text = file.read_text(encoding="utf-8")
            if f"@{self._attribute}(" in text:
                for names, options in _decorators(text, self._attribute):
                    found |= dict.fromkeys(names, Declared(f"{self._package}.{file.stem}", options))
        return dict(sorted(found.items()))

    @functools.cached_property
    def built_in(self) -> dict[str, str]:
        """The module of each name that comes with whet."""
        return {name: declared.module for name, declared in self.declared.items()}

    def keep(self, name: str, value: Any) -> None:
        """Note a function under a name; the decorator has checked whose name it is."""
        (self._own if name in self.built_in else self._registered)[name] = value

    def kept(self, name: str) -> Any:
        """Return what this process has registered under a name from outside the package, or None."""
        return self._registered.get(name)

    def find(self, name: str, file: object = None) -> Any:
        """Return the function of a name, importing its file or its package first."""
        if name in self.built_in:
            importlib.import_module(self.built_in[name])
            return self._own[name]
        if name not in self._registered and name in self._installed:
            self._loaded(name)
            if name not in self._registered:
                raise UserError(f"{self.label(name)}: {self._installed[name].value} registers nothing of that name")
        return self._registered[name] if name in self._registered else super().find(name)


def _decorators(text: str, decorator: str) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield names and literal options of each call of a decorator at the top level of a file."""
    for node in ast.parse(text).body:
        for call in getattr(node, "decorator_list", []):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == decorator:
                names = [str(each.value) for each in call.args if isinstance(each, ast.Constant)]
                literal = [each for each in call.keywords if isinstance(each.value, ast.Constant | ast.Tuple)]
                yield names, {str(each.arg): ast.literal_eval(each.value) for each in literal}
