"""Sections that actor, critic and reference share: model, optimizer, sharding and offloading."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import about, key, section

DTYPES = ("bf16", "bfloat16", "fp16", "float16", "fp32", "float32")
ALL_LINEAR = "all-linear"


@dataclass(frozen=True)
class FSDPConfig:
    """Sharding over devices, and the precision of weights."""

    enable_full_shard: bool = key(True, "shard weights, gradients and optimizer; false shards the last two only")
    enable_cpu_offload: bool = key(
        False, "keep shards in host memory and move them layer by layer; reference on one device: as offload_params"
    )
    enable_rank0_init: bool = key(True, "read weights on the first rank only and send them to the others")
    use_orig_params: bool = key(False, "shards always are the original parameters (FSDP2): must be false")
    torch_dtype: str | None = key(
        None, "dtype of the trained weights; null = bf16 on a GPU, fp32 on a CPU (bf16 with adamw_bf16)", choices=DTYPES
    )
    fsdp_size: int = key(-1, "devices in a sharding group; -1 = all", least=1, also=(-1,))
    mp_param_dtype: str = key("bf16", "dtype of forward and backward passes on GPUs", choices=DTYPES)
    mp_reduce_dtype: str = key("fp32", "dtype in which gradients are summed over devices", choices=DTYPES)
    mp_buffer_dtype: str = key("fp32", "dtype of buffers", choices=DTYPES)


@dataclass(frozen=True)
class OffloadConfig:
    """What waits in host memory while the rollout runs."""

    offload_params: bool = key(False, "move weights to host memory when they are not used")
    offload_optimizer: bool = key(False, "move the optimizer's state to host memory when it is not used")


@dataclass(frozen=True)
class RefOffloadConfig:
    """The same of the reference, which has no optimizer."""

    offload_params: bool | None = key(
        None, "move weights to host memory when they are not used; null = on one GPU, where updates need the memory"
    )
    offload_optimizer: bool = key(False, "changes nothing")


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer and its schedule; the schedule moves once per training step."""

    lr: float = key(1e-6, "learning rate", least=0, most=1000)
    betas: tuple[float, float] = key((0.9, 0.999), "decay rates of AdamW's two moments", least=0, below=1)
    weight_decay: float = key(0.01, "decoupled weight decay", least=0)
    strategy: str = key(
        "adamw",
        "adamw, with Kahan sums for bf16 weights; adamw_bf16 asks for such; adamw_8bit; muon for layers' matrices",
        choices=("adamw", "adamw_bf16", "adamw_8bit", "muon"),
    )
    lr_warmup_ratio: float = key(0.0, "share of all steps over which lr rises from 0", least=0, most=1)
    lr_warmup_steps: int | None = key(None, "steps over which lr rises from 0; null = by lr_warmup_ratio", least=0)
    min_lr_ratio: float | None = key(
        None, "where the cosine schedule ends, as a share of lr; null = 0", least=0, most=1
    )
    lr_scheduler_type: str = key("constant", "shape of the schedule after warmup", choices=("constant", "cosine"))


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
    enable_activation_offload: bool = key(
        False, "recompute activations, and keep the inputs of layers in host memory between forward and backward"
    )
    trust_remote_code: bool = key(False, "run Python code that comes with the model")
    freeze_vision_tower: bool = key(False, "do not train the vision encoder")
    lora: LoraConfig = field(default_factory=LoraConfig, metadata=section("low-rank adapters"))

    @property
    def offloads_activations(self) -> bool:
        """True if inputs of layers go to host memory; layers whose activations are all kept have nothing to send."""
        return self.enable_activation_offload and self.enable_gradient_checkpointing is not False
