"""Typed sections of the config, one file each; `tree.py` joins them into `Config`."""

from whet.config.schema.tree import Config, WorkerConfig, all_keys, all_presets, all_sections, escaped

__all__ = ["Config", "WorkerConfig", "all_keys", "all_presets", "all_sections", "escaped"]
