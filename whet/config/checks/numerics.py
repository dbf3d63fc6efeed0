"""Checks of what changes the numbers of a pass: adapters, replayed routing, quantization."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whet.config.checks.run import Check
from whet.config.schema import Config
from whet.config.schema.model import listed_modules
from whet.config.values import show


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


def _routing(config: Config) -> Iterator[str]:
    rollout, actor = config.worker.rollout, config.worker.actor
    if not rollout.replay_routing:
        return
    for name, given in (("speculate", rollout.speculate), ("exact", rollout.exact)):
        if given:
            yield f"worker.rollout.replay_routing=true cannot go with worker.rollout.{name}=true; set one to false"
    for name, size in (("tensor_parallel_size", actor.tensor_parallel_size), ("ulysses_size", actor.ulysses_size)):
        if size > 1:
            yield f"worker.rollout.replay_routing=true needs whole layers and rows: set worker.actor.{name} to 1"


def _quantization(config: Config) -> Iterator[str]:
    rollout = config.worker.rollout
    if rollout.quantize_learner and rollout.quantization is None:
        yield "worker.rollout.quantize_learner=true rounds as the sampler does: set worker.rollout.quantization=fp8 too"
    for name in ("quantization", "kv_cache_dtype"):
        if getattr(rollout, name) and rollout.exact:
            yield f"worker.rollout.{name}={getattr(rollout, name)} has no exact form; set worker.rollout.exact=false"


NUMERICS_CHECKS: tuple[Check, ...] = (_adapters, _routing, _quantization)
