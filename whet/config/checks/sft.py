"""What `whet sft` looks at in a config, and what must hold there before any file is opened or weight is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from whet.config.checks.train import precision_problems, sampling_problems
from whet.config.schema import Config
from whet.config.schema.actor import CriticConfig, RefConfig
from whet.config.schema.algorithm import AlgorithmConfig
from whet.config.schema.placement import PlacementConfig
from whet.config.schema.reward import RewardConfig
from whet.config.schema.rollout import RolloutConfig
from whet.errors import UserError


def sft_config(config: Config) -> Config:
    """The config without what only reinforcement learning reads, so that one file can serve both.

    One pass over each batch, at temperature 1, on all devices of the run.
    """
    actor = replace(config.worker.actor, ppo_epochs=1)
    worker = replace(
        config.worker,
        hybrid_engine=True,
        actor=actor,
        critic=CriticConfig(),
        ref=RefConfig(),
        reward=RewardConfig(),
        rollout=RolloutConfig(),
    )
    trainer = replace(config.trainer, placement=PlacementConfig(), stages=[], critic_warmup=0)
    return replace(config, worker=worker, trainer=trainer, algorithm=AlgorithmConfig(disable_kl=True))


def check_sft(config: Config) -> None:
    """Raise a `UserError` that lists everything that keeps `whet sft` from starting."""
    problems = [*_required(config), *sampling_problems(config), *precision_problems(config, "actor")]
    if problems:
        raise UserError("\n".join(problems))


def sft_batch_size(config: Config) -> int:
    """Rows per update."""
    return config.sft.batch_size or config.data.rollout_batch_size


def _required(config: Config) -> Iterator[str]:
    data, trainer = config.data, config.trainer
    if config.worker.actor.model.model_path is None:
        yield "worker.actor.model.model_path is not set: name a model folder or a hub id"
    if not data.train_files and not trainer.val_only:
        yield "data.train_files is not set: name a data file, a folder or a hub dataset"
    if not data.val_files and trainer.val_only:
        yield "data.val_files is not set, but trainer.val_only=true validates"
    elif not data.val_files and trainer.val_freq > 0:
        yield (
            f"data.val_files is not set, but trainer.val_freq={trainer.val_freq} validates; name the data or set "
            "trainer.val_freq=-1"
        )
