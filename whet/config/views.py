"""Views of a config by job: without the keys that the job does not read, so that one file can serve several jobs.

A loaded config is never changed (its sections are frozen); whatever a job derives from it is made here or by
`with_values`.
"""

from __future__ import annotations

from whet.config.keys import with_values
from whet.config.schema import Config
from whet.config.schema.actor import CriticConfig, RefConfig
from whet.config.schema.algorithm import AlgorithmConfig
from whet.config.schema.reward import RewardConfig
from whet.config.schema.rollout import RolloutConfig
from whet.config.schema.trainer import PlacementConfig


def sft_view(config: Config) -> Config:
    """Return the config without what only reinforcement learning reads.

    One pass over each batch, at temperature 1, on all devices of the run.
    """
    return with_values(
        config,
        {
            "worker.hybrid_engine": True,
            "worker.actor.ppo_epochs": 1,
            "worker.critic": CriticConfig(),
            "worker.ref": RefConfig(),
            "worker.reward": RewardConfig(),
            "worker.rollout": RolloutConfig(),
            "trainer.placement": PlacementConfig(),
            "trainer.stages": [],
            "trainer.critic_warmup": 0,
            "algorithm": AlgorithmConfig(disable_kl=True),
        },
    )


def generate_view(config: Config) -> Config:
    """Return the config of a job that samples `generate.files` and trains nothing."""
    return with_values(config, {"data.train_files": "", "data.val_files": "", "trainer.val_only": True})


def eval_view(config: Config) -> Config:
    """Return the config of a job that scores `data.val_files`, or data sets by name, and trains nothing."""
    view = with_values(config, {"data.train_files": "", "trainer.val_only": True})
    named = config.eval.datasets or config.eval.responses
    return with_values(view, {"data.val_files": ""}) if named else view


def chat_view(config: Config) -> Config:
    """Return the config of a job that samples what a person types, without files of training and scoring."""
    return with_values(
        config,
        {
            "data.train_files": "",
            "data.val_files": "",
            "data.image_dir": None,
            "worker.reward": RewardConfig(),
            "algorithm": AlgorithmConfig(),
            "trainer.val_only": True,
            "trainer.logger": ["console"],
        },
    )
