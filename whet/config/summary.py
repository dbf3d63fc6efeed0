"""The few settings of a job that matter, in lines to print before it starts."""

from __future__ import annotations

import os
from pathlib import Path

from whet.config.files import run_folder
from whet.config.schema import Config
from whet.config.schema.distill import DistillConfig

Rows = dict[str, str]


def summary_lines(config: Config, job: str) -> list[str]:
    """Return a line for each setting of a job (train, sft, generate, eval, serve, chat) to see before it starts.

    The first says what the config started from: a file, the built-in quickstart, or the defaults.
    """
    if job in ("train", "sft"):
        own = (_train if job == "train" else _sft)(config)
    else:
        from whet.config.summary_sampling import ROWS

        own = ROWS[job](config)
    rows = {"config": _start(config), **own}
    width = max(map(len, rows))
    return [f"{name:<{width}}  {text}" for name, text in rows.items()]


def _train(config: Config) -> Rows:
    algorithm, data, rollout = config.algorithm, config.data, config.worker.rollout
    loss = config.worker.actor.loss_type
    return {
        "model": model_row(config),
        "data": _data(config),
        "reward": _reward(config),
        "algorithm": ", ".join(
            [
                algorithm.adv_estimator,
                *([f"loss {loss}"] if loss != "default" else []),
                count(rollout.n, "sample") + " a prompt",
                "no KL" if algorithm.disable_kl else f"KL {algorithm.kl_coef:g}",
                *([_teacher(algorithm.distill)] if algorithm.distill.active else []),
            ]
        ),
        "batch": f"{data.rollout_batch_size} prompts a step, {config.worker.actor.global_batch_size} an update",
        **_training(config),
    }


def _teacher(distill: DistillConfig) -> str:
    """Return the teacher, and what is learned from it."""
    measure = distill.divergence if distill.use == "loss" else "its log-probs as advantages"
    rewards = "no rewards" if distill.alone else f"rewards x {distill.reward_coef:g}"
    return f"teacher {short(distill.model_path or 'the policy itself')} ({measure}, {rewards})"


def _sft(config: Config) -> Rows:
    batch = f"{config.sft.batch_size or config.data.rollout_batch_size} rows an update"
    return {"model": model_row(config), "data": _data(config), "batch": batch, **_training(config)}


def _training(config: Config) -> Rows:
    trainer, optim = config.trainer, config.worker.actor.optim
    steps = f"{trainer.max_steps}" if trainer.max_steps is not None else count(trainer.total_epochs, "epoch")
    if trainer.stages:
        steps += f", {count(len(trainer.stages), 'stage')}"
    return {
        "lr": f"{optim.lr:g}, {optim.lr_scheduler_type}",
        "steps": "none: validation only" if trainer.val_only else steps,
        "device": device_row(config),
        "folder": short(str(run_folder(config))),
    }


def _start(config: Config) -> str:
    source = str(config.source) if config.source is not None else ""
    return config.origin.replace(source, short(source)) if source else config.origin


def model_row(config: Config) -> str:
    """Return the model, its adapters and the checkpoint it begins with."""
    model, checkpoint = config.worker.actor.model, config.trainer.load_checkpoint_path
    return ", ".join(
        [
            short(str(model.model_path)),
            *([f"LoRA of rank {model.lora.rank}"] if model.lora.rank else []),
            *([f"weights of {short(checkpoint)}"] if checkpoint is not None else []),
        ]
    )


def _data(config: Config) -> str:
    data = config.data
    names = [data.train_files] if not config.trainer.val_only else []
    return ", ".join([*names, *([f"validation {data.val_files}"] if data.val_files else [])])


def _reward(config: Config) -> str:
    reward, rollout = config.worker.reward, config.worker.rollout
    agent = rollout.agent or rollout.agent_command
    if agent is not None:
        return f"by {short(agent)}" + (f", and {_score(config)}" if reward.is_named else "")
    env = rollout.env
    if env is None:
        return _score(config)
    earned = f"each turn's, by {short(env)}"
    return f"{earned}, and {_score(config)}" if reward.is_named else earned


def _score(config: Config) -> str:
    reward = config.worker.reward
    if reward.combine:
        return ", ".join(f"{weight} {short(str(spec))}" for spec, weight in reward.parts.items())
    if "model" in reward.terms:
        return f"reward model {short(str(reward.model.path))}"
    if "judge" in reward.terms:
        judge = reward.judge
        return f"{judge.mode} judge {judge.model or ''} {judge.base_url or short(str(judge.model_path))}".replace(
            "  ", " "
        )
    if reward.reward_function is None:
        return reward.url or "a scorer for each row's data_source"
    path, colon, function = reward.reward_function.rpartition(":")
    return f"{short(path)}{colon}{function}"


def device_row(config: Config) -> str:
    """Return the kind of device, and how many."""
    count = config.trainer.n_gpus_per_node * config.trainer.nnodes
    return config.trainer.device if count == 1 else f"{config.trainer.device}, {count} devices"


def count(number: int, noun: str) -> str:
    """Return a number of things."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def short(path: str) -> str:
    """Return a path relative to the working folder where it lies below."""
    here = Path.cwd()
    return os.path.relpath(path, here) if os.path.isabs(path) and here in Path(path).parents else path
