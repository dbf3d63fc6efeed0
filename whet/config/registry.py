"""Named implementations that a config key or a command chooses from: built-in, installed, registered, or in a file.

Built-in names are read from the folders and files of the package, which imports nothing; the module behind a name is
imported when it is asked for. Installed packages add names by entry points (see docs/extending.md).
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.config.problems import hint
from whet.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_PACKAGE = Path(__file__).parents[1]


class Registry:
    """Values by name. The built-in ones are in modules below `package`, each as the module's `attribute`.

    With `module`, a name is a folder that has a `module`.py: engines/hf/spec.py is hf. Without, a name is a file that
    assigns `attribute`: loggers/wandb.py is wandb, and files beside it without that attribute are no names.
    """

    def __init__(self, key: str, package: str, attribute: str, module: str = "", entry_points: str = "") -> None:
        """`key` is the config key that holds the name, for messages; `entry_points` is the group of installed ones."""
        self.key = key
        self._package, self._attribute, self._module = package, attribute, module
        self._group = entry_points
        self._registered: dict[str, Any] = {}
        self._files: dict[tuple[Path, str], Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, in alphabetical order."""
        return tuple(sorted({*self.built_in, *self._installed, *self._registered}))

    @functools.cached_property
    def built_in(self) -> dict[str, str]:
        """The module of each name that comes with whet."""
        folder = package_folder(self._package)
        if self._module:
            names = sorted(path.parent.name for path in folder.glob(f"*/{self._module}.py"))
            return {name: f"{self._package}.{name}.{self._module}" for name in names}
        assigned = re.compile(rf"^{self._attribute}\b\s*[:=]", re.MULTILINE)
        files = sorted(file for file in folder.glob("*.py") if assigned.search(file.read_text(encoding="utf-8")))
        # A name that is a word of Python's has a file with an underscore behind it.
        return {file.stem.removesuffix("_"): f"{self._package}.{file.stem}" for file in files}

    def register(self, name: str, value: Any) -> None:
        """Add a value for this process; registering a name again replaces the value, unless it is a built-in one."""
        if not isinstance(name, str) or not name.isidentifier():
            raise UserError(f"{self.key}: {name!r} cannot be registered: a name consists of letters, digits and _")
        if name in self.built_in:
            raise UserError(f"{self.key}: {name} cannot be registered: whet has one of that name; choose another")
        self._registered[name] = value

    def is_registered(self, name: str) -> bool:
        """True if the name is known to this process only."""
        return name in self._registered

    def find(self, name: str, file: Path | None = None) -> Any:
        """Return the value of a name; `file` is where the path in `path.py:NAME` leads."""
        if file is not None:
            return self._from_file(name, file.absolute(), name.rpartition(":")[2])
        if name in self.built_in:
            return getattr(importlib.import_module(self.built_in[name]), self._attribute)
        if name in self._registered:
            return self._registered[name]
        if name in self._installed:
            return self._loaded(name)
        raise UserError(f"{self.label(name)}: is not one of {', '.join(self.names)}{hint(name, self.names)}")

    def label(self, name: str) -> str:
        """Return how a user writes the choice of a name, for messages."""
        return f"{self.key}={name}"

    @functools.cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        """Entry points of other packages; a built-in name stays whet's."""
        if not self._group:
            return {}
        points = _entry_points(tuple(sys.path)).select(group=self._group)
        return {point.name: point for point in points if point.name not in self.built_in}

    def _loaded(self, name: str) -> Any:
        point = self._installed[name]
        try:
            return point.load()
        except (Exception, SystemExit) as error:
            package = f" of {point.dist.name}" if point.dist else ""
            raise UserError(
                f"{self.label(name)}: {point.value}{package} cannot be imported: {said(error)}; repair or uninstall it"
            ) from error

    def _from_file(self, name: str, path: Path, attribute: str) -> Any:
        if (path, attribute) not in self._files:
            self._files[path, attribute] = read_file(self.label(name), path, attribute)
        return self._files[path, attribute]


@functools.cache
def _entry_points(path: tuple[str, ...]) -> Any:  # its type has another name in Python 3.11
    """Return those of every package on the path; reading them takes as long for one group as for all."""
    from importlib.metadata import entry_points  # takes longer to import than the rest of this file

    return entry_points()


def read_file(label: str, path: Path, attribute: str) -> Any:
    """Import a user's file and return its `attribute`; `label` begins the sentence of an error."""
    if not path.is_file():
        raise UserError(f"{label}: there is no file {path}")
    module_name = f"whet_file_{path.stem}"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # files beside it can be imported, and hide nothing that is installed
    spec = spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{label}: {path} is no Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look their module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise UserError(f"{label}: {path} cannot be imported: {said(error)}") from error
    if not hasattr(module, attribute):
        raise UserError(f"{label}: {path} defines no {attribute or 'name behind the colon'}")
    return getattr(module, attribute)


def package_folder(package: str) -> Path:
    """Return the folder of a package of whet, which is not imported."""
    return _PACKAGE.joinpath(*package.split(".")[1:])


def said(error: BaseException) -> str:
    """Return the sentence of a `UserError`, or the type and text of any other error."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
