"""Models and data that come with whet: written into a cache when first asked for, never downloaded."""

from whet.assets.store import builtin, resolve_data, resolve_model

__all__ = ["builtin", "resolve_data", "resolve_model"]
