"""What must hold between keys, before any file is opened or weight is loaded.

Each check yields a sentence per problem, so that a user sees all of them at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from whet.config.algorithm import GROUP_ESTIMATORS
from whet.config.check_devices import device_problems
from whet.config.check_parallel import parallel_problems
from whet.config.check_recipes import recipe_problems, refills
from whet.config.correction import SECTION, rejection_rules, weight_bounds
from whet.config.divisors import divisors
from whet.config.engines import engine_problems
from whet.config.keys import get
from whet.config.model import listed_modules
from whet.config.not_yet import refusals
from whet.config.rollout import RolloutConfig
from whet.config.schema import Config, all_keys
from whet.config.spelling import hint
from whet.config.stages import read_stages
from whet.config.values import Given, complaint_about, read_value, show
from whet.errors import UserError

# What validation may sample differently; everything else of the engine is shared with training.
VALIDATION_KEYS = ("n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "ignore_eos")


def check_config(config: Config) -> None:
    """Raise a `UserError` that lists every contradiction between keys, missing key and feature not here yet."""
    problems = _problems(config)
    for i, stage in enumerate(read_stages(config)):
        problems += [f"trainer.stages[{i}]: {each}" for each in _problems(stage.config) if each not in problems]
    if problems:
        raise UserError("\n".join(problems))


def _problems(config: Config) -> list[str]:
    problems = [*_required(config), *sampling_problems(config)]
    if not config.trainer.val_only:
        problems += [
            *_groups(config),
            *_batches(config, "actor"),
            *_draws(config),
            *_loss(config),
            *recipe_problems(config),
            *_correction(config),
        ]
    return problems


def sampling_problems(config: Config) -> list[str]:
    """A sentence for each problem that any job has which samples from the model."""
    return [
        *_values(config),
        *refusals(config),
        *device_problems(config),
        *_names(config),
        *_validation(config),
        *_lengths(config),
        *_adapters(config),
        *engine_problems(config),
        *parallel_problems(config),
    ]


def check_critic(config: Config, needed: bool) -> None:
    """As `check_config`, for what matters only where the estimator needs values; a critic nobody needs is refused."""
    if config.trainer.val_only:
        return
    if not needed and config.trainer.critic_warmup > 0:
        raise UserError(
            f"trainer.critic_warmup={config.trainer.critic_warmup}: algorithm.adv_estimator="
            f"{config.algorithm.adv_estimator} has no critic to warm up; set it to 0, or adv_estimator to gae"
        )
    problems = [*_batches(config, "critic"), *_budget(config, "critic"), *precision_problems(config, "critic")]
    if needed and problems:
        raise UserError("\n".join(problems))


def val_rollout(config: Config) -> RolloutConfig:
    """The rollout config of validation: training's with one sample a prompt, and `val_override_config` over it."""
    return replace(config.worker.rollout, val_override_config={}, **{"n": 1, **_overrides(config)})


def _overrides(config: Config) -> dict[str, Any]:
    prefix = "worker.rollout.val_override_config"
    overrides = {}
    for name, value in config.worker.rollout.val_override_config.items():
        given = Given(f"{prefix}.{name}", value)
        if name in ("max_tokens", "response_length"):
            raise UserError(f"{given.name}: validation has the response length of data.max_response_length")
        if name not in VALIDATION_KEYS:
            close = hint(name, VALIDATION_KEYS) or f"; validation may set {', '.join(VALIDATION_KEYS)}"
            raise UserError(f"unknown key {given.name}{close}")
        overrides[name] = read_value(all_keys()[f"worker.rollout.{name}"], given)
    return overrides


def _values(config: Config) -> Iterator[str]:
    for name, key in all_keys().items():
        complaint = complaint_about(key, get(config, name), extended=bool(config.algorithm.extensions))
        if complaint:
            yield f"{name}={show(get(config, name))}: {complaint}"


def _required(config: Config) -> Iterator[str]:
    if config.worker.actor.model.model_path is None:
        yield "worker.actor.model.model_path is not set: name a model folder or a hub id"
    if not config.data.train_files and not config.trainer.val_only:
        yield "data.train_files is not set: name a data file, a folder or a hub dataset"
    if not config.data.val_files:
        if config.trainer.val_only:
            yield "data.val_files is not set, but trainer.val_only=true validates"
        elif config.trainer.val_freq > 0:
            yield (
                f"data.val_files is not set, but trainer.val_freq={config.trainer.val_freq} validates; "
                "name the data or set trainer.val_freq=-1"
            )


def _names(config: Config) -> Iterator[str]:
    for name in ("project_name", "experiment_name"):
        value = getattr(config.trainer, name)
        path = PurePath(value)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            yield (
                f"trainer.{name}={show(value)}: must name a folder inside checkpoints/; "
                "trainer.save_checkpoint_path chooses any other place"
            )


def _validation(config: Config) -> Iterator[str]:
    try:
        _overrides(config)
    except UserError as error:
        yield str(error)


def _lengths(config: Config) -> Iterator[str]:
    longest = config.data.max_prompt_length + config.data.max_response_length
    wanted = f"data.max_prompt_length + data.max_response_length = {longest}"
    model_len = config.worker.rollout.max_model_len
    yield from _budget(config, "actor")
    if model_len is not None and model_len < longest:
        yield f"worker.rollout.max_model_len={model_len} is less than one sample may need: {wanted}"
    low, high = config.data.min_pixels, config.data.max_pixels
    if low is not None and high is not None and low > high:
        yield f"data.min_pixels={low} is more than data.max_pixels={high}"


def _adapters(config: Config) -> Iterator[str]:
    lora = config.worker.actor.model.lora
    if not lora.rank:
        return
    for name in ("target_modules", "exclude_modules"):
        value = getattr(lora, name)
        try:
            re.compile(value or "")
        except re.error as error:
            if listed_modules(value) is None:
                yield f"worker.actor.model.lora.{name}={show(value)} is no regular expression: {error}"
    if config.worker.rollout.exact:
        yield (
            f"worker.rollout.exact=true: adapters (worker.actor.model.lora.rank={lora.rank}) have no exact form; "
            "set it to false"
        )


def _groups(config: Config) -> Iterator[str]:
    rollout, estimator = config.worker.rollout, config.algorithm.adv_estimator
    if rollout.n == 1 and estimator in GROUP_ESTIMATORS:
        yield (
            f"worker.rollout.n=1: adv_estimator={estimator} compares the samples of a prompt with each other; "
            "set worker.rollout.n to 2 or more (8 is common)"
        )
    keys, weights = config.algorithm.gdpo_reward_keys, config.algorithm.gdpo_reward_weights
    if weights and len(weights) != len(keys or ["overall"]):
        yield (
            f"algorithm.gdpo_reward_weights={show(weights)}: give one weight for each of "
            f"algorithm.gdpo_reward_keys={show(keys)}"
        )
    if rollout.n > 1 and rollout.temperature == 0:
        yield f"worker.rollout.temperature=0 makes all {rollout.n} samples of a prompt the same; set it above 0"
    if rollout.n > 1 and rollout.top_k == 1:
        yield f"worker.rollout.top_k=1 makes all {rollout.n} samples of a prompt the same; set -1 or 2 and more"


def _batches(config: Config, part: str) -> Iterator[str]:
    """Mini- and micro-batches of the actor or the critic."""
    data, worker, n = config.data, getattr(config.worker, part), config.worker.rollout.n
    yield from _must_divide(
        f"worker.{part}.global_batch_size",
        worker.global_batch_size,
        "data.rollout_batch_size",
        data.rollout_batch_size,
    )
    if worker.dynamic_batching:
        return
    if worker.micro_batch_tokens is not None:
        yield (
            f"worker.{part}.micro_batch_tokens counts tokens, but worker.{part}.dynamic_batching=false counts samples"
        )
    yield from _must_divide(
        f"worker.{part}.micro_batch_size_per_device_for_update",
        worker.micro_batch_size_per_device_for_update,
        f"worker.{part}.global_batch_size x worker.rollout.n",
        worker.global_batch_size * n,
    )
    yield from _must_divide(
        f"worker.{part}.micro_batch_size_per_device_for_experience",
        worker.micro_batch_size_per_device_for_experience,
        "data.rollout_batch_size x worker.rollout.n",
        data.rollout_batch_size * n,
    )


def _draws(config: Config) -> Iterator[str]:
    size = config.data.mini_rollout_batch_size
    if size is not None and not refills(config):  # a step that refills carries what is too much to the next one
        prompts = ("data.rollout_batch_size", config.data.rollout_batch_size)
        yield from _must_divide("data.mini_rollout_batch_size", size, *prompts)


def _budget(config: Config, part: str) -> Iterator[str]:
    longest = config.data.max_prompt_length + config.data.max_response_length
    tokens = getattr(config.worker, part).micro_batch_tokens
    if tokens is not None and tokens < longest:
        yield (
            f"worker.{part}.micro_batch_tokens={tokens} is less than one sample may need: "
            f"data.max_prompt_length + data.max_response_length = {longest}"
        )


def _must_divide(part_name: str, part: int, whole_name: str, whole: int) -> Iterator[str]:
    if part < 1 or whole < 1 or whole % part == 0:
        return
    below = max(size for size in divisors(whole) if size < part)
    above = min((size for size in divisors(whole) if size > part), default=None)
    fitting = f"{below} or {above}" if above else f"{below}"
    multiples = " or ".join(str(part * times) for times in (whole // part, whole // part + 1) if times)
    yield f"{part_name}={part} does not divide {whole_name}={whole}; set it to {fitting}, or the latter to {multiples}"


def _correction(config: Config) -> Iterator[str]:
    correction, actor = config.algorithm.rollout_correction, config.worker.actor
    for read in (weight_bounds, rejection_rules):
        try:
            read(correction)
        except UserError as error:
            yield str(error)
    recompute = f"worker.actor.recompute_old_log_probs={show(actor.recompute_old_log_probs)}"
    if correction.bypass_mode and actor.recompute_old_log_probs:
        yield f"{recompute}, but {SECTION}.bypass_mode=true takes the sampler's; keep one"
    if correction.active and not correction.bypass_mode and actor.recompute_old_log_probs is False:
        yield f"{recompute}, but {SECTION} compares the learner's log-probs with the sampler's; leave it out"
    if correction.bypass_mode and actor.loss_type != "default":
        yield (
            f"worker.actor.loss_type={actor.loss_type}, but {SECTION}.bypass_mode=true trains with "
            f"{SECTION}.loss_type={correction.loss_type}; leave the former out"
        )


def _loss(config: Config) -> Iterator[str]:
    algorithm = config.algorithm
    if algorithm.disable_kl and algorithm.use_kl_loss:
        yield "algorithm.disable_kl=true leaves no KL, but algorithm.use_kl_loss=true adds it to the loss; keep one"
    yield from precision_problems(config, "actor")


def precision_problems(config: Config, part: str) -> Iterator[str]:
    """A sentence where the optimizer of the actor or the critic does not go with the dtype of its weights."""
    worker = getattr(config.worker, part)
    if worker.optim.strategy == "adamw_bf16" and worker.fsdp.torch_dtype not in (None, "bf16", "bfloat16"):
        yield (
            f"worker.{part}.optim.strategy=adamw_bf16 trains bf16 weights, but worker.{part}.fsdp.torch_dtype="
            f"{worker.fsdp.torch_dtype}; set that to bf16 or the strategy to adamw"
        )
