"""Models and data that come with whet: written into a cache when first asked for, never downloaded."""

from whet.assets.models import write_model
from whet.assets.store import builtin, resolve_data, resolve_model

__all__ = ["builtin", "resolve_data", "resolve_model", "write_model"]
