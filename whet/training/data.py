"""The data of a training run: loaders of prompts, how many a step draws, and how many steps they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from whet.assets import resolve_data
from whet.config import Config
from whet.data.dataset import PromptDataset
from whet.data.files import Table, read_tables, with_answers
from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.rewards.choice import by_data_source
from whet.tracking.console import Console
from whet.training.model_folder import ModelFolder
from whet.training.parts import resolver
from whet.training.stages import Stages
from whet.types import Prompt

CHECKED_ROWS = 4  # rows that the reward function is tried on before weights are loaded
MOST_SOURCES = 64  # further rows, one of each data source, where scorers are chosen by it
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Loaders(Generic[Row]):
    """Training and validation rows; None where a run has no use for them."""

    train: PromptLoader[Row] | None
    val: PromptLoader[Row] | None


def open_data(config: Config, model: ModelFolder, console: Console) -> tuple[Loaders[Prompt], list[Prompt]]:
    """Open both loaders; return them with a few rows to try the reward function on."""
    data, resolve = config.data, resolver(config)
    loader = val_loader = None
    rows: list[Prompt] = []
    for key in ("train_files", "val_files"):
        named = data_files(config, key, console)
        if not named or (key == "train_files" and config.trainer.val_only):
            continue
        files: str | list[Table] = named
        if scored_by_environment(config):  # which may have no use for answers
            files = [with_answers(table, data.answer_key) for table in read_tables(named, f"data.{key}", resolve)]
        limit = config.worker.rollout.limit_images
        dataset = PromptDataset(files, data, model.tokenizer, f"data.{key}", resolve, model.processor, limit)
        console.note(f"{key.removesuffix('_files')} data: {dataset.summary()}")
        if key == "train_files":
            size = draw_size(config, len(dataset))
            opened = loader = PromptLoader(dataset, size, data.shuffle, data.seed, warn=console.warn)
            loader.media = dataset.media
        else:
            size = data.val_batch_size
            opened = val_loader = PromptLoader(dataset, size, shuffle=False, seed=0, drop_last=False, warn=console.warn)
        rows = rows or opened.prompts(range(min(CHECKED_ROWS, len(dataset))))
        if by_data_source(config.worker.reward) and not scored_by_environment(config):
            tried = {prompt.uid for prompt in rows}
            others = [i for i in dataset.first_of_each("data_source") if dataset.uids[i] not in tried]
            rows += opened.prompts(others[:MOST_SOURCES]) if others else []
    return Loaders(loader, val_loader), rows


def scored_by_environment(config: Config) -> bool:
    """True if episodes have the rewards of their turns alone."""
    return config.worker.rollout.plays_episodes and not config.worker.reward.is_named


def data_files(config: Config, key: str, console: Console) -> str:
    """Return the files that `data.train_files` or `data.val_files` names, built-in data made if need be."""
    return ",".join(resolve_data(part.strip(), console.note) for part in getattr(config.data, key).split(","))


def count_steps(config: Config, loader: PromptLoader | None, stages: Stages) -> int:
    """Training steps of the whole run, once every stage has enough rows to draw from."""
    if loader is None:
        return 0
    for each in stages.configs:
        loader.check_size(draw_size(each, len(loader)))
    if (planned := stages.total_steps()) is not None:
        return planned
    if config.trainer.max_steps is not None:
        return config.trainer.max_steps
    prompts = loader.steps_per_epoch * draw_size(config, len(loader))
    per_step = config.data.rollout_batch_size * config.trainer.rejection_sample_multiplier
    return max(1, prompts // per_step) * config.trainer.total_epochs


def draw_size(config: Config, rows: int) -> int:
    """Return the number of prompts that a step draws at a time."""
    data = config.data
    if rows < data.rollout_batch_size or data.mini_rollout_batch_size is None:
        return data.rollout_batch_size  # with too few rows, the loader says what is wrong with it
    if rows < data.mini_rollout_batch_size:
        raise UserError(
            f"data.mini_rollout_batch_size={data.mini_rollout_batch_size} is more than the {rows} rows of the training "
            f"data: set it to {rows} or less."
        )
    return data.mini_rollout_batch_size
