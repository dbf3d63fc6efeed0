"""One typed schema, one loader, one place for defaults and for cross-key checks."""

from whet.config.load import load_config
from whet.config.schema import Config

__all__ = ["Config", "load_config"]
