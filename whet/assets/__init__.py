"""Models and data that come with whet: written into a cache when first asked for, never downloaded."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.assets.store import builtin, resolve_data, resolve_model

__all__ = ["builtin", "resolve_data", "resolve_model"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: `whet --help` reads the folder of examples and nothing else of this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("whet.assets.store"), name)
