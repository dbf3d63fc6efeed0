"""Keys of features that this version does not have: known by name, refused when set to anything that would need them.

When a feature arrives, its lines leave this table and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from whet.config.keys import Key, get
from whet.config.schema import Config, all_keys
from whet.config.values import show


@dataclass(frozen=True)
class Refusal:
    """Keys (by pattern) that must keep one of the `allowed` values, or their default when none are named."""

    pattern: str
    feature: str
    allowed: tuple[Any, ...] = ()


NOT_YET = (
    Refusal("trainer.ray_timeline", "Ray's timeline"),
    Refusal("worker.critic.model.tokenizer_path", "a critic with a tokenizer of its own"),
    Refusal("worker.*.padding_free", "training on padded samples"),
    Refusal("worker.actor.use_torch_compile", "a compiled forward pass"),
    Refusal("worker.critic.model.lora.rank", "a critic with adapters"),
    Refusal("worker.*.fsdp.torch_dtype", "this dtype", (None, "bf16", "bfloat16", "fp32", "float32")),
)


def refusals(config: Config) -> Iterator[str]:
    """A sentence for each key that asks for a feature this version does not have."""
    for name, key in all_keys().items():
        refusal = next((each for each in NOT_YET if fnmatchcase(name, each.pattern)), None)
        if refusal is not None and get(config, name) not in _allowed(refusal, key):
            values = " or ".join(show(value) for value in _allowed(refusal, key))
            yield (
                f"{name}={show(get(config, name))}: {refusal.feature} is not in this version yet; leave it at {values}"
            )


def _allowed(refusal: Refusal, key: Key) -> tuple[Any, ...]:
    return refusal.allowed or (key.default,)
