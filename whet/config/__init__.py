"""One typed schema, one loader, one place for defaults and for cross-key checks.

Names are imported when they are asked for: help of the command line needs the registry and nothing of the schema.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.config.check import check_config, check_critic, val_rollout
    from whet.config.check_recipes import draws_allowed, refills
    from whet.config.files import check_files, local_name, resolve_path, run_folder
    from whet.config.load import load_config
    from whet.config.schema import Config
    from whet.config.spelling import nearest
    from whet.config.stages import Stage, read_stages

__all__ = [
    "Config",
    "Stage",
    "check_config",
    "check_critic",
    "check_files",
    "draws_allowed",
    "load_config",
    "local_name",
    "nearest",
    "read_stages",
    "refills",
    "resolve_path",
    "run_folder",
    "val_rollout",
]
_MODULES = {
    "check": ("check_config", "check_critic", "val_rollout"),
    "check_recipes": ("draws_allowed", "refills"),
    "files": ("check_files", "local_name", "resolve_path", "run_folder"),
    "load": ("load_config",),
    "schema": ("Config",),
    "spelling": ("nearest",),
    "stages": ("Stage", "read_stages"),
}


def __getattr__(name: str) -> Any:
    """Import the name that is asked for."""
    for module, names in _MODULES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"whet.config.{module}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
