"""Keys that nothing reads, most of them of features to come: known by name, refused at any other value than theirs.

When a feature arrives, its lines leave this table and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from whet.config.checks.run import known_values
from whet.config.keys import Key
from whet.config.schema import Config, all_keys
from whet.config.values import show


@dataclass(frozen=True)
class Refusal:
    """Keys (by pattern) that must keep one of the `allowed` values, or their default when none are named."""

    pattern: str
    reason: str
    allowed: tuple[Any, ...] = ()


def _not_yet(pattern: str, feature: str, allowed: tuple[Any, ...] = ()) -> Refusal:
    return Refusal(pattern, f"{feature} is not in this version yet", allowed)


NOT_YET = (
    _not_yet("trainer.ray_timeline", "Ray's timeline"),
    _not_yet("worker.critic.model.tokenizer_path", "a critic with a tokenizer of its own"),
    _not_yet("worker.*.padding_free", "training on padded samples"),
    _not_yet("worker.actor.use_torch_compile", "a compiled forward pass"),
    _not_yet("worker.critic.model.lora.rank", "a critic with adapters"),
    _not_yet("worker.*.fsdp.torch_dtype", "this dtype", (None, "bf16", "bfloat16", "fp32", "float32")),
    Refusal("worker.*.fsdp.use_orig_params", "shards always are the original parameters (FSDP2)"),
    Refusal("worker.rollout.disable_tqdm", "engines draw no bar of their own, and trainer.quiet=true hides whet's"),
)


def refusals(config: Config) -> Iterator[str]:
    """Yield a sentence for each key that asks for a feature this version does not have."""
    for name, value in known_values(config, all_keys()):
        refusal = next((each for each in NOT_YET if fnmatchcase(name, each.pattern)), None)
        if refusal is not None and value not in _allowed(refusal, all_keys()[name]):
            values = " or ".join(show(allowed) for allowed in _allowed(refusal, all_keys()[name]))
            yield f"{name}={show(value)}: {refusal.reason}; leave it at {values}"


def _allowed(refusal: Refusal, key: Key) -> tuple[Any, ...]:
    return refusal.allowed or (key.default,)
