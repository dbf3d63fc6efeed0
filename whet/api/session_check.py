"""Checks of a session's config before anything is loaded."""

from __future__ import annotations

from dataclasses import replace

from whet.config import Config, check_config
from whet.errors import UserError

_GIVEN = "given.py:later"  # stands for what calls of a session bring along, so that its absence is no mistake


def check_session(config: Config) -> None:
    """Raise a `UserError` for what keeps a session from starting; data and batch sizes are a matter of its calls."""
    reward = config.worker.reward
    rollout, optim = config.worker.rollout, config.worker.actor.optim
    if config.trainer.stages:
        raise UserError("trainer.stages: a session has no stages; change what you pass to its calls")
    if config.trainer.val_only:
        raise UserError("trainer.val_only: a session trains; use whet.evaluate to validate only")
    scheduled = optim.lr_scheduler_type != "constant" or (optim.lr_warmup_steps is None and optim.lr_warmup_ratio)
    if scheduled and config.trainer.max_steps is None:
        raise UserError("steps must be given: the schedule of the learning rate depends on how many updates there are")
    worker = replace(
        config.worker,
        reward=reward if reward.is_named else replace(reward, reward_function=_GIVEN),
        rollout=replace(rollout, n=max(rollout.n, 2), temperature=rollout.temperature or 1.0),
        actor=replace(config.worker.actor, global_batch_size=1),
        critic=replace(config.worker.critic, global_batch_size=1),
    )
    data = replace(config.data, train_files=_GIVEN, rollout_batch_size=1)
    trainer = replace(config.trainer, val_freq=-1)
    check_config(replace(config, worker=worker, data=data, trainer=trainer))
    if not reward.is_named and config.algorithm.adv_estimator == "remax":
        raise UserError("advantage=remax scores greedy responses by itself: give reward=...")
