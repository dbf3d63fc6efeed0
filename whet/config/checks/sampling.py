"""Checks that every job makes which samples from a model: values, devices, lengths, adapters, the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from whet.config.checks.engines import engine_problems
from whet.config.checks.not_yet import refusals
from whet.config.checks.run import Check, known_values, where_set
from whet.config.checks.updates import budget_problems
from whet.config.problems import hint
from whet.config.schema import Config, all_keys
from whet.config.schema.rollout import RolloutConfig
from whet.config.values import Given, complaint_about, read_value, show
from whet.errors import UserError

# What validation may sample differently; everything else of the engine is shared with training.
VALIDATION_KEYS = ("n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "ignore_eos")


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
    extended = bool(config.algorithm.extensions)
    for name, value in known_values(config, all_keys()):
        complaint = complaint_about(all_keys()[name], value, extended)
        if complaint:
            yield f"{name}={show(value)}: {complaint}"


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
    _overrides(config)
    yield from ()


def _lengths(config: Config) -> Iterator[str]:
    longest = config.data.max_prompt_length + config.data.max_response_length
    wanted = f"data.max_prompt_length + data.max_response_length = {longest}"
    model_len = config.worker.rollout.max_model_len
    if model_len is not None and model_len < longest:
        yield f"worker.rollout.max_model_len={model_len} is less than one sample may need: {wanted}"


def _pixels(config: Config) -> Iterator[str]:
    low, high = config.data.min_pixels, config.data.max_pixels
    if low is not None and high is not None and low > high:
        yield f"data.min_pixels={low} is more than data.max_pixels={high}"


DEVICES = where_set(
    "devices.DEVICE_CHECKS",
    *("trainer.n_gpus_per_node", "trainer.nnodes", "trainer.placement.", "worker.hybrid_engine"),
    *("worker.actor.fsdp.", "worker.critic.fsdp.", "worker.ref.fsdp."),
    *("worker.actor.tensor_parallel_size", "worker.actor.ulysses_size", "worker.critic.ulysses_size"),
)
NUMERICS = where_set(
    "numerics.NUMERICS_CHECKS",
    "worker.actor.model.lora.",
    *(f"worker.rollout.{name}" for name in ("replay_routing", "quantization", "quantize_learner", "kv_cache_dtype")),
)
SAMPLING_CHECKS: tuple[Check, ...] = (
    _values,
    refusals,
    DEVICES,
    _names,
    _validation,
    lambda config: budget_problems(config, "actor"),
    _lengths,
    _pixels,
    NUMERICS,
    engine_problems,
)
