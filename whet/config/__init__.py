"""One typed schema (`schema/`), one loader (`loading/`), defaults and checks by job (`checks/`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.config.checks.files import check_files
    from whet.config.checks.sampling import val_rollout
    from whet.config.checks.train import check_config, check_critic
    from whet.config.files import local_name, resolve_path, run_folder
    from whet.config.keys import with_values
    from whet.config.loading.load import load_config
    from whet.config.problems import nearest
    from whet.config.schema import Config
    from whet.config.stages import Stage, read_stages
    from whet.config.summary import summary_lines

__all__ = [
    "Config",
    "Stage",
    "check_config",
    "check_critic",
    "check_files",
    "load_config",
    "local_name",
    "nearest",
    "read_stages",
    "resolve_path",
    "run_folder",
    "summary_lines",
    "val_rollout",
    "with_values",
]

# Imported when asked for: help and one section's types must not wait for YAML and all checks.
_MODULES = {
    "checks.files": ("check_files",),
    "checks.sampling": ("val_rollout",),
    "checks.train": ("check_config", "check_critic"),
    "keys": ("with_values",),
    "files": ("local_name", "resolve_path", "run_folder"),
    "loading.load": ("load_config",),
    "schema": ("Config",),
    "problems": ("nearest",),
    "stages": ("Stage", "read_stages"),
    "summary": ("summary_lines",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the public name that is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'whet.config' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"whet.config.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
