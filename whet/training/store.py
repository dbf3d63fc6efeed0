"""A run's place on disk: its folder, its checkpoints, and the loggers that write its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from whet.checkpoint.manifest import Checkpoint
from whet.checkpoint.store import CheckpointStore
from whet.config import Config
from whet.config.anchored import anchored
from whet.data.loader import PromptLoader
from whet.tracking import Tracker
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.training.checked import CheckedModel
from whet.training.parts import resolver
from whet.training.resume import check_disk, starting_point, take_position


@dataclass(frozen=True, slots=True)
class RunStore:
    """The run folder, held by this process, and what is written to it."""

    folder: RunFolder
    checkpoints: CheckpointStore
    checkpoint: Checkpoint | None  # where this run continues from
    tracker: Tracker


def open_store(
    run: CheckedModel,
    folder: RunFolder,
    loader: PromptLoader[Any] | None,
    total_steps: int,
    console: Console,
    stack: ExitStack,
    job: str = "train",
    prints: bool = True,
) -> RunStore:
    """Find the checkpoint to continue from, put the loader where it was, check the disk, open the loggers.

    Without `prints` the console shows no lines of steps. What must be closed afterwards goes onto the stack.
    """
    config, trainer = run.config, run.config.trainer
    checkpoints = CheckpointStore(folder.path, trainer.save_limit, trainer.keep_best, console.warn)
    checkpoint = starting_point(config, checkpoints, console, run.model.config, job)
    take_position(checkpoint, loader)
    check_disk(config, folder, run.paths, total_steps, console, run.adapters)
    console.log_to(folder.log)
    loggers = [name for name in trainer.logger if prints or name != "console"]
    tracker = _open_tracker(config, loggers, folder, console)
    stack.callback(tracker.close)
    finished = loader is not None and checkpoint is not None and checkpoint.step >= total_steps
    if not ((trainer.val_only or finished) and folder.config.exists()):  # it tells how the run was trained
        folder.write_config(anchored(config).to_yaml())
    return RunStore(folder, checkpoints, checkpoint, tracker)


def _open_tracker(config: Config, loggers: Sequence[str], folder: RunFolder, console: Console) -> Tracker:
    trainer = config.trainer
    return Tracker(
        list(dict.fromkeys([*loggers, "file"])),  # metrics.jsonl is part of every run folder
        folder,
        console,
        trainer.project_name,
        trainer.experiment_name,
        config.stored(),
        trainer.log_samples,
        trainer.log_token_log_probs,
        resolver(config),
    )
