"""Packages of adapters, which are extras of whet: imported when an environment of theirs is named."""

from __future__ import annotations

import importlib
from types import ModuleType

from whet.errors import UserError


def require(module: str, extra: str) -> ModuleType:
    """Import a package; `UserError` with the command that installs it where it is missing or broken."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"needs the package {module} ({error}): pip install 'whet[{extra}]'") from error
