"""Named implementations that a config key chooses from, in folders of the package or outside of it.

Names are found by listing a folder, which imports nothing; the module behind a name is imported when it is asked for.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from whet.config.spelling import hint
from whet.errors import UserError

_PACKAGE = Path(__file__).parents[1]


class Registry:
    """Values by name: one for each folder below `package` that has a `module`.py, and those that were registered.

    Each such module holds its value as `attribute`. A name of the form `path.py:NAME` is a value in a user's file.
    """

    def __init__(self, key: str, package: str, module: str, attribute: str) -> None:
        """`key` is the config key that holds the name, for messages."""
        self.key = key
        self._package, self._module, self._attribute = package, module, attribute
        self._registered: dict[str, Any] = {}
        self._files: dict[tuple[Path, str], Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, in alphabetical order."""
        return tuple(sorted({*self._built_in(), *self._registered}))

    def register(self, name: str, value: Any) -> None:
        """Add a value for this process; registering a name again replaces the value, unless it is a built-in one."""
        if not isinstance(name, str) or not name.isidentifier():
            raise UserError(f"{self.key}: {name!r} cannot be registered: a name consists of letters, digits and _")
        if name in self._built_in():
            raise UserError(f"{self.key}: {name} cannot be registered: whet has one of that name; choose another")
        self._registered[name] = value

    def is_registered(self, name: str) -> bool:
        """True if the name is known to this process only."""
        return name in self._registered

    def find(self, name: str, file: Path | None = None) -> Any:
        """Return the value of a name; `file` is where the path in `path.py:NAME` leads."""
        if file is not None:
            return self._from_file(name, file.absolute(), name.rpartition(":")[2])
        if name in self._registered:
            return self._registered[name]
        if name in self._built_in():
            return getattr(importlib.import_module(f"{self._package}.{name}.{self._module}"), self._attribute)
        raise UserError(f"{self.key}={name}: is not one of {', '.join(self.names)}{hint(name, self.names)}")

    def _built_in(self) -> list[str]:
        folder = _PACKAGE.joinpath(*self._package.split(".")[1:])
        return [path.parent.name for path in folder.glob(f"*/{self._module}.py")]

    def _from_file(self, name: str, path: Path, attribute: str) -> Any:
        if (path, attribute) in self._files:
            return self._files[path, attribute]
        if not path.is_file():
            raise UserError(f"{self.key}={name}: there is no file {path}")
        module_name = f"whet_file_{path.stem}"
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))  # files beside it can be imported, and hide nothing that is installed
        spec = spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise UserError(f"{self.key}={name}: {path} is no Python file; its name must end in .py")
        module = module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses and pickle look their module up by name
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[module_name]
            what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            raise UserError(f"{self.key}={name}: {path} cannot be imported: {what}") from error
        if not hasattr(module, attribute):
            raise UserError(f"{self.key}={name}: {path} defines no {attribute or 'name behind the colon'}")
        self._files[path, attribute] = getattr(module, attribute)
        return self._files[path, attribute]
