"""Paths in the config: where they point."""

from __future__ import annotations

import os
from pathlib import Path

from whet.config.schema import Config

PICKLE = ".pickle"  # functions that the Python API has written into a run folder


def resolve_path(config: Config, value: str) -> Path:
    """The path as given if it exists, else relative to the folder of the config file or of one that it extends."""
    path = Path(os.path.expanduser(value))
    if path.is_absolute() or os.path.exists(path) or not config.folders:
        return path
    beside = [folder / path for folder in config.folders]
    return next((each for each in beside if os.path.exists(each)), beside[0])


def local_name(config: Config, name: str) -> str:
    """A folder's path where one stands, a hub id or built-in name unchanged."""
    path = resolve_path(config, name)
    return str(path) if path.exists() else name


def run_folder(config: Config) -> Path:
    """Return the run folder: `trainer.save_checkpoint_path`, or checkpoints/project_name/experiment_name."""
    trainer = config.trainer
    if trainer.save_checkpoint_path is not None:
        return Path(os.path.expanduser(trainer.save_checkpoint_path))
    return Path("checkpoints") / trainer.project_name / trainer.experiment_name


def is_template_text(value: str) -> bool:
    """Return True if a template is given as its text rather than as a file."""
    return "{{" in value or "{%" in value
