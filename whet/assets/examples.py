"""The folder of examples that comes with whet."""

from __future__ import annotations

from whet.config.examples import examples_folder

__all__ = ["examples_folder"]
