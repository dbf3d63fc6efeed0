"""Build everything that supervised fine-tuning needs from a checked config; weights are loaded last."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from whet.assets import resolve_data
from whet.checkpoint.manifest import Checkpoint
from whet.checkpoint.store import CheckpointStore
from whet.config import Config, run_folder
from whet.config.anchored import anchored
from whet.config.check_sft import sft_batch_size
from whet.data.demonstrations import DemonstrationDataset
from whet.data.loader import PromptLoader
from whet.distributed import TorchrunCluster
from whet.errors import UserError
from whet.learn.learner import Learner
from whet.model.load import count_parameters
from whet.model.processor import Processor
from whet.supervised.ranks import SftPlan, learner_on_ranks
from whet.tracking import Tracker
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.training import parts, policy
from whet.training.components import open_tracker
from whet.training.device import choose_placement, choose_threads, is_distributed, keep_freed_memory
from whet.training.interrupt import Interrupt
from whet.training.model_folder import ModelFolder, find_model
from whet.training.offloading import offload_notes
from whet.training.resume import check_disk, starting_point, take_position
from whet.types import Sample

JOB = "sft"
VAL_ROWS = 256  # validated at a time where data.val_batch_size does not say
Loader = PromptLoader[list[Sample]]


@dataclass(slots=True)
class SftRooms:
    """What the loop walks through."""

    config: Config
    console: Console
    interrupt: Interrupt
    folder: RunFolder
    checkpoints: CheckpointStore
    checkpoint: Checkpoint | None  # where this run continues from
    tracker: Tracker
    tokenizer: PreTrainedTokenizerBase
    processor: Processor | None
    loader: Loader | None  # None with trainer.val_only
    val_loader: Loader | None
    learner: Learner
    total_steps: int


def open_rooms(config: Config, console: Console, stack: ExitStack, torchrun: TorchrunCluster | None = None) -> SftRooms:
    """Build the rooms of a run; what must be closed afterwards goes onto the stack."""
    placement = choose_placement(config)
    keep_freed_memory(placement)
    model = find_model(config, console.note)
    adapters = policy.check_model(config, model.config)
    parts.check_lengths(config, model.config, model.tokenizer)
    loader = None if config.trainer.val_only else _train_loader(config, model, console)
    val_loader = _val_loader(config, model, console)
    total_steps = console.total_steps = _count_steps(config, loader)

    folder = stack.enter_context(RunFolder(run_folder(config)))
    checkpoints = CheckpointStore(folder.path, config.trainer.save_limit, config.trainer.keep_best, console.warn)
    checkpoint = starting_point(config, checkpoints, console, model.config, JOB)
    take_position(checkpoint, loader)
    check_disk(config, folder, [model.path], total_steps, console, adapters)
    console.log_to(folder.log)
    tracker = open_tracker(config, folder, console)
    stack.callback(tracker.close)
    if not (config.trainer.val_only and folder.config.exists()):
        folder.write_config(anchored(config).to_yaml())

    choose_threads(placement, count_parameters(model.path))
    for note in offload_notes(config, placement.device):
        console.note(note)
    if is_distributed(config):
        plan = SftPlan(
            config, model.path, model.tokenizer_path, model.ends, checkpoint, total_steps, False, None, folder.path,
            samples=False,
        )  # fmt: skip
        learner = learner_on_ranks(plan, torchrun, folder.path / "ranks", console.note, stack)
    else:
        weights = policy.load_policy(config, model.path, checkpoint, placement, console.note)
        learner = parts.open_learner(config, weights, total_steps)
    return SftRooms(
        config=config,
        console=console,
        interrupt=stack.enter_context(Interrupt(console.note)),
        folder=folder,
        checkpoints=checkpoints,
        checkpoint=checkpoint,
        tracker=tracker,
        tokenizer=model.tokenizer,
        processor=model.processor,
        loader=loader,
        val_loader=val_loader,
        learner=learner,
        total_steps=total_steps,
    )


def _train_loader(config: Config, model: ModelFolder, console: Console) -> Loader:
    dataset = open_demonstrations(config, "train_files", model, console)
    size, key = sft_batch_size(config), "data.rollout_batch_size" if config.sft.batch_size is None else "sft.batch_size"
    if len(dataset) < size:
        raise UserError(
            f"{key}={size} is more than the {len(dataset)} rows of the training data: set sft.batch_size to "
            f"{len(dataset)} or less."
        )
    return PromptLoader(dataset, size, config.data.shuffle, config.data.seed, warn=console.warn)


def _val_loader(config: Config, model: ModelFolder, console: Console) -> Loader | None:
    if not config.data.val_files:
        return None
    dataset = open_demonstrations(config, "val_files", model, console)
    size = config.data.val_batch_size if config.data.val_batch_size > 0 else VAL_ROWS
    return PromptLoader(dataset, size, shuffle=False, seed=0, drop_last=False, warn=console.warn)


def open_demonstrations(config: Config, key: str, model: ModelFolder, console: Console) -> DemonstrationDataset:
    """The rows of `data.train_files` or `data.val_files`, said in a line."""
    files = ",".join(resolve_data(part.strip(), console.note) for part in getattr(config.data, key).split(","))
    dataset = DemonstrationDataset(
        files,
        config.data,
        config.sft,
        model.tokenizer,
        model.ends,
        f"data.{key}",
        parts.resolver(config),
        model.processor,
    )
    console.note(f"{key.removesuffix('_files')} data: {dataset.summary()}")
    if dataset.endless and key == "train_files":
        console.warn(
            f"{dataset.endless} demonstrations do not end with a token that ends a response, so that the model does "
            "not learn to stop there: the chat template, or its {% generation %} marks, leave it out"
        )
    return dataset


def _count_steps(config: Config, loader: Loader | None) -> int:
    if loader is None:
        return 0
    return config.trainer.max_steps or loader.steps_per_epoch * config.trainer.total_epochs
