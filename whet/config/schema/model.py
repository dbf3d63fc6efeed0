"""`worker.*.model.*`: which model is trained and how it is loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import about, key, section

ALL_LINEAR = "all-linear"


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters."""

    rank: int = key(0, "rank of the adapters; 0 trains all weights", least=0, most=65_536)
    alpha: int = key(64, "scale of the adapters: alpha / rank", least=1)
    target_modules: str = key(
        ALL_LINEAR, "modules that get an adapter: all-linear, names such as q_proj,v_proj, or a regular expression"
    )
    exclude_modules: str | None = key(None, "modules that get none: names or a regular expression")


def listed_modules(value: str) -> list[str] | None:
    """The names in a list such as `q_proj,v_proj` or `[q_proj, v_proj]`; None for a regular expression."""
    names = [name.strip().strip("'\"") for name in value.strip().removeprefix("[").removesuffix("]").split(",")]
    return names if all(re.fullmatch(r"\w+(\.\w+)*", name) for name in names) else None


@dataclass(frozen=True)
class ModelConfig:
    """A Hugging Face model folder and how to open it."""

    model_path: str | None = key(None, "model folder, hub id, or a built-in name such as whet/quickstart")
    tokenizer_path: str | None = key(None, "tokenizer folder or hub id; null = model_path")
    override_config: dict[str, Any] = field(
        default_factory=dict, metadata=about("values that replace those of the model's own config.json")
    )
    enable_gradient_checkpointing: bool | None = key(
        None, "recompute activations in the backward pass; null = when memory needs it (GPU), always (CPU)"
    )
    trust_remote_code: bool = key(False, "run Python code that comes with the model")
    freeze_vision_tower: bool = key(False, "do not train the vision encoder")
    lora: LoraConfig = field(default_factory=LoraConfig, metadata=section("low-rank adapters"))
