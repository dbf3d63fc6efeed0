"""Checks that the keys are set without which no model can be trained: a model and data."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.checks.run import Check
from whet.config.schema import Config


def model_set(config: Config) -> Iterator[str]:
    """Yield a sentence if no model is named."""
    if config.worker.actor.model.model_path is None:
        yield "worker.actor.model.model_path is not set: name a model folder or a hub id"


def _train_files(config: Config) -> Iterator[str]:
    if not config.data.train_files and not config.trainer.val_only:
        yield "data.train_files is not set: name a data file, a folder or a hub dataset"


def _val_files(config: Config) -> Iterator[str]:
    if config.data.val_files:
        return
    if config.trainer.val_only:
        yield "data.val_files is not set, but trainer.val_only=true validates"
    elif config.trainer.val_freq > 0:
        yield (
            f"data.val_files is not set, but trainer.val_freq={config.trainer.val_freq} validates; "
            "name the data or set trainer.val_freq=-1"
        )


DATA_CHECKS: tuple[Check, ...] = (_train_files, _val_files)
