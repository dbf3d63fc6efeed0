"""Compare a config with the one that a checkpoint was made with: changed keys, and whether it is the same model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any

from whet.checkpoint.manifest import Checkpoint
from whet.config import Config
from whet.config.files import anchored
from whet.config.secrets import LEFT_OUT, masked
from whet.config.values import show
from whet.errors import UserError
from whet.training.continuity import at

_MODEL = "worker.actor.model.model_path"


def changed_keys(checkpoint: Checkpoint, config: Config) -> list[str]:
    """Return a line `key: old → new` for each key whose value is another than the checkpoint's config has.

    Paths are compared as they are written and as absolute ones: older checkpoints hold them as they were written.
    """
    before = masked(checkpoint.meta["config"], mark=LEFT_OUT)
    return list(_changes(before, config.stored(), anchored(config).stored(), config.written))


def check_same_model(checkpoint: Checkpoint, config: Config) -> None:
    """Raise a `UserError` if the config names another model than the run that this checkpoint is of."""
    before = at(checkpoint.meta["config"], _MODEL)
    now, whole = (at(each.stored(), _MODEL) for each in (config, anchored(config)))
    if _MODEL in config.written or before is None or before in (now, whole) or _is_moved(str(before), str(whole)):
        return
    folder = checkpoint.path.parent
    raise UserError(
        f"{_MODEL}={now}: {folder} holds a run of another model, {before}, at step {checkpoint.step}. Start a new run "
        f"with {new_run(config)}, or set {_MODEL}={before} to continue that one."
    )


def more_steps(config: Config, step: int) -> str:
    """Name the key that lets a run that has finished at `step` train on."""
    if config.trainer.stages:
        return "another stage in trainer.stages"
    if config.trainer.max_steps is not None:
        return f"trainer.max_steps={max(step, config.trainer.max_steps) + 1} or more"
    return f"trainer.total_epochs={config.trainer.total_epochs + 1} or more"


def new_run(config: Config) -> str:
    """Name the key that gives a run a folder of its own."""
    by_path = config.trainer.save_checkpoint_path is not None
    return "trainer.save_checkpoint_path=FOLDER" if by_path else "trainer.experiment_name=NAME"


def _is_moved(before: str, now: str) -> bool:
    """Return True for two paths to one folder, and for a folder that is no longer where it was."""
    if not os.path.isdir(now):
        return False
    if os.path.isdir(before):
        return os.path.samefile(before, now)
    return os.path.isabs(before)


def _changes(
    before: dict[str, Any], now: dict[str, Any], whole: dict[str, Any], written: Collection[str], prefix: str = ""
) -> Iterator[str]:
    """Yield lines of what differs; not of `written` keys, whose text is the environment's and may change."""
    for name in now:
        old, new, absolute = before.get(name), now[name], whole[name]
        if f"{prefix}{name}" in written:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new, {**new, **absolute}, written, f"{prefix}{name}.")
        elif old not in (new, absolute):
            yield f"{prefix}{name}: {show(old)} → {show(new)}"
