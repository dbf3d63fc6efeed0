"""The data of supervised learning: loaders of demonstrations, and how many steps they make."""

from __future__ import annotations

from whet.config import Config
from whet.config.check_sft import sft_batch_size
from whet.data.demonstrations import DemonstrationDataset
from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.tracking.console import Console
from whet.training.data import Loaders, data_files
from whet.training.model_folder import ModelFolder
from whet.training.parts import resolver
from whet.types import Sample

VAL_ROWS = 256  # validated at a time where data.val_batch_size does not say
Loader = PromptLoader[list[Sample]]


def open_data(config: Config, model: ModelFolder, console: Console) -> Loaders[list[Sample]]:
    """Open the loaders of training rows, unless the run only validates, and of validation rows."""
    train = None if config.trainer.val_only else _train_loader(config, model, console)
    return Loaders(train, _val_loader(config, model, console))


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
    """Read the rows of `data.train_files` or `data.val_files`, and say how many there are."""
    dataset = DemonstrationDataset(
        data_files(config, key, console),
        config.data,
        config.sft,
        model.tokenizer,
        model.ends,
        f"data.{key}",
        resolver(config),
        model.processor,
    )
    console.note(f"{key.removesuffix('_files')} data: {dataset.summary()}")
    if dataset.endless and key == "train_files":
        console.warn(
            f"{dataset.endless} demonstrations do not end with a token that ends a response, so that the model does "
            "not learn to stop there: the chat template, or its {% generation %} marks, leave it out"
        )
    return dataset


def count_steps(config: Config, loader: Loader | None) -> int:
    """Return the training steps of the whole run."""
    if loader is None:
        return 0
    return config.trainer.max_steps or loader.steps_per_epoch * config.trainer.total_epochs
