"""Short names of the config keys that scripts set most, in one table: the jobs read it and their help is made from it.

A config key has dots, so it cannot be a Python keyword. `whet.train(lr=1e-6)` sets worker.actor.optim.lr; any other key
is given in full, as `**{"worker.actor.optim.warmup_ratio": 0.1}` or in `overrides={...}`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import indent
from typing import Any, TypeVar

from whet.config.schema import all_keys

TRAINS = ("train", "session")
SAMPLES = ("train", "session", "evaluate", "generate")
ALL = (*SAMPLES, "sft")
_Job = TypeVar("_Job", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ShortName:
    """One keyword of the Python API and the config keys that it sets, all to the same value."""

    name: str
    keys: tuple[str, ...]
    jobs: tuple[str, ...] = ALL
    also: tuple[str, ...] = field(default=())  # what other libraries call it
    replaces: tuple[str, ...] = ()  # keys that it sets only where they are not given

    @property
    def help(self) -> str:
        """The help of its first config key."""
        return all_keys()[self.keys[0]].help


_ACTOR, _CRITIC = "worker.actor.global_batch_size", "worker.critic.global_batch_size"
SHORT_NAMES = (
    ShortName("output", ("trainer.save_checkpoint_path",), (*TRAINS, "sft"), ("output_dir",)),
    ShortName("output", ("generate.output",), ("generate",)),
    ShortName("output", ("eval.output",), ("evaluate",), ("output_dir",)),
    ShortName("resume", ("trainer.find_last_checkpoint",), (*TRAINS, "sft")),
    ShortName("steps", ("trainer.max_steps",), (*TRAINS, "sft"), ("max_steps",)),
    ShortName("epochs", ("trainer.total_epochs",), ("train", "sft"), ("total_epochs", "num_train_epochs")),
    ShortName("lr", ("worker.actor.optim.lr",), (*TRAINS, "sft"), ("learning_rate",)),
    ShortName("batch_size", ("data.rollout_batch_size",), ("train",), ("rollout_batch_size",), (_ACTOR, _CRITIC)),
    ShortName("batch_size", ("sft.batch_size",), ("sft",)),
    ShortName("mini_batch_size", (_ACTOR, _CRITIC), ("train",), ("global_batch_size",)),
    ShortName(
        "n", ("worker.rollout.n",), ("train", "session", "generate"), ("num_generations", "rollouts_per_example")
    ),
    ShortName("n", ("eval.n",), ("evaluate",), ("num_generations", "rollouts_per_example")),
    ShortName("temperature", ("worker.rollout.temperature",), SAMPLES),
    ShortName("top_p", ("worker.rollout.top_p",), SAMPLES),
    ShortName("top_k", ("worker.rollout.top_k",), SAMPLES),
    ShortName("stop", ("worker.rollout.stop",), SAMPLES),
    ShortName("engine", ("worker.rollout.name",), SAMPLES),
    ShortName("max_prompt_length", ("data.max_prompt_length",)),
    ShortName(
        "max_response_length",
        ("data.max_response_length",),
        ALL,
        ("max_completion_length", "max_tokens", "max_new_tokens"),
    ),
    ShortName("advantage", ("algorithm.adv_estimator",), TRAINS, ("algorithm", "adv_estimator")),
    ShortName("loss", ("worker.actor.loss_type",), TRAINS, ("loss_type",)),
    ShortName("kl", ("algorithm.kl_coef",), TRAINS, ("beta", "kl_coef")),
    ShortName("reward_options", ("worker.reward.reward_function_kwargs",), SAMPLES[:3]),
    ShortName("reward_type", ("worker.reward.reward_type",), SAMPLES[:3]),
    ShortName("reward_timeout", ("worker.reward.timeout",), SAMPLES[:3]),
    ShortName("template", ("data.format_prompt",), ALL, ("format_prompt",)),
    ShortName("prompt_key", ("data.prompt_key",)),
    ShortName("answer_key", ("data.answer_key",), SAMPLES),
    ShortName("image_key", ("data.image_key",)),
    ShortName("messages_key", ("sft.messages_key",), ("sft",)),
    ShortName("response_key", ("sft.response_key",), ("sft",)),
    ShortName("tokenizer", ("worker.actor.model.tokenizer_path",)),
    ShortName("lora_rank", ("worker.actor.model.lora.rank",), (*TRAINS, "sft"), ("lora",)),
    ShortName("seed", ("worker.rollout.seed", "data.seed"), (*SAMPLES,)),
    ShortName("seed", ("data.seed",), ("sft",)),
    ShortName("shuffle", ("data.shuffle",), ("train", "sft")),
    ShortName("device", ("trainer.device",)),
    ShortName("devices", ("trainer.n_gpus_per_node",), (*TRAINS, "sft"), ("n_gpus",)),
    ShortName("val_freq", ("trainer.val_freq",), ("train", "sft"), ("eval_steps",)),
    ShortName("save_freq", ("trainer.save_freq",), ("train", "sft"), ("save_steps",)),
    ShortName("save_limit", ("trainer.save_limit",), (*TRAINS, "sft"), ("save_total_limit",)),
    ShortName("logger", ("trainer.logger",), (*TRAINS, "sft"), ("report_to",)),
    ShortName("quiet", ("trainer.quiet",)),
    ShortName("datasets", ("eval.datasets",), ("evaluate",)),
    ShortName("limit", ("eval.limit",), ("evaluate",)),
    ShortName("token_ids", ("generate.token_ids",), ("generate",)),
)


def names_of(job: str) -> dict[str, ShortName]:
    """Return every keyword that a job takes, those of other libraries included."""
    chosen = [short for short in SHORT_NAMES if job in short.jobs]
    return {name: short for short in chosen for name in (short.name, *short.also)}


def table(job: str) -> str:
    """Return the keywords of a job as lines of text: the name, the key that it sets, and what that means."""
    shorts = [short for short in SHORT_NAMES if job in short.jobs]
    width = max(len(short.name) for short in shorts)
    return "\n".join(f"{short.name:<{width}}  {short.keys[0]}: {short.help}" for short in shorts)


def documented(job: str) -> Callable[[_Job], _Job]:
    """Append the table of a job's keywords to the docstring of its function or class."""

    def extend(function: _Job) -> _Job:
        keywords = (
            f"Keywords (each sets a config key; `whet config` explains all of them):\n\n{indent(table(job), '    ')}"
        )
        function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n{indent(keywords, '    ')}\n"
        return function

    return extend
