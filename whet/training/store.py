"""A run's place on disk: its folder, the checkpoint it continues from, and the loggers that write its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

from whet.checkpoint.manifest import Checkpoint
from whet.checkpoint.store import CheckpointStore
from whet.config import Config, resolve_path
from whet.config.files import anchored
from whet.config.texts import size_text
from whet.data.loader import PromptLoader
from whet.model.load import count_parameters
from whet.tracking import Tracker
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.training.checked import CheckedModel
from whet.training.parts import resolver

# fp32 weights and AdamW's two moments
_BYTES_PER_PARAMETER = 12
_BYTES_PER_PARAMETER_MODEL_ONLY = 4


def starting_point(
    config: Config, store: CheckpointStore, console: Console, model: PretrainedConfig, job: str = "train"
) -> Checkpoint | None:
    """The checkpoint to continue from: the newest good one of this run, else the one named, else none.

    It must be one of the same `job`, the command that wrote it, and of a model of the same shape; the run's own newest
    one must be of the very model that the config names.
    """
    trainer = config.trainer
    found = own = store.last() if trainer.find_last_checkpoint else None
    if found is None and trainer.load_checkpoint_path is not None:
        found = store.open(resolve_path(config, trainer.load_checkpoint_path))
    elif not trainer.find_last_checkpoint:
        store.refuse_usable()
    store.continue_from(found)
    if found is None:
        return None
    from whet.training.continuity import check_continues

    check_continues(found, config, model, job, console, own is not None)
    return found


def take_position(checkpoint: Checkpoint | None, loader: PromptLoader | None) -> None:
    """Put the loader where the checkpoint left it; refused when the data or its order is another."""
    if checkpoint is not None and loader is not None and checkpoint.meta["loader"] is not None:
        from whet.training.continuity import check_position

        check_position(checkpoint, len(loader))
        loader.load_state_dict(checkpoint.meta["loader"])


def check_disk(
    config: Config,
    folder: RunFolder,
    models: list[str],
    total_steps: int,
    console: Console,
    adapters: int | None = None,
) -> None:
    """Refuse when not even the checkpoint being written and the one before it fit; warn when not all will.

    `adapters` counts the parameters that are saved in place of the first model's.
    """
    parameters = sum(count_parameters(path) or 0 for path in (models if adapters is None else models[1:]))
    parameters += adapters or 0
    if not parameters or config.trainer.val_only:
        return
    each = parameters * (_BYTES_PER_PARAMETER_MODEL_ONLY if config.trainer.save_model_only else _BYTES_PER_PARAMETER)
    saves = 1 + (total_steps - 1) // config.trainer.save_freq if config.trainer.save_freq > 0 else 1
    folder.check_free(each * min(saves, 2))
    kept = saves if config.trainer.save_limit < 0 else min(saves, config.trainer.save_limit + 2)
    free = folder.free_bytes()
    if free < each * kept:
        console.warn(
            f"{kept} checkpoints of {size_text(each)} will not all fit: {folder.path} has {size_text(free)} free. "
            "Set trainer.save_limit or a larger trainer.save_freq."
        )


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
        trainer.log_token_limit,
    )
