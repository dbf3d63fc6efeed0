"""The optimizer and its learning rate, a pure function of the training step."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from whet.config.schema.optim import OptimConfig


def build_optimizer(params: Iterable[nn.Parameter], config: OptimConfig) -> torch.optim.Optimizer:
    """AdamW, or its Kahan-summed form where parameters are bf16: they would swallow the updates of plain AdamW.

    Frozen parameters, such as all but the adapters under LoRA, have no state.
    """
    params, betas = [p for p in params if p.requires_grad], (config.betas[0], config.betas[1])
    if config.strategy == "adamw_bf16" or any(p.dtype == torch.bfloat16 for p in params):
        from whet.learn.kahan import KahanAdamW

        return KahanAdamW(params, lr=config.lr, betas=betas, weight_decay=config.weight_decay)
    return torch.optim.AdamW(params, lr=config.lr, betas=betas, weight_decay=config.weight_decay, fused=True)


def sum_gradients_in_fp32(params: Iterable[nn.Parameter]) -> None:
    """Let the gradients of bf16 parameters add up in fp32 over micro-batches, where this torch can (2.11 and later)."""
    for p in params:
        if p.requires_grad and p.dtype == torch.bfloat16 and hasattr(p, "grad_dtype"):
            # FSDP sets the gradients of its shards itself, in their own dtype, and adds to whatever is there
            p.grad_dtype = None if isinstance(p, DTensor) else torch.float32


def widen_gradients(params: Iterable[nn.Parameter]) -> None:
    """Turn the bf16 gradients of shards into fp32, so that later micro-batches are added to them in fp32."""
    for p in params:
        narrow = isinstance(p, DTensor) and p.grad is not None and p.grad.dtype == torch.bfloat16
        if narrow and p.grad is not None and getattr(p, "grad_dtype", torch.bfloat16) is None:
            p.grad = p.grad.float()


def learning_rate(step: int, total_steps: int, config: OptimConfig) -> float:
    """The learning rate of training step `step` (the first is 1).

    Warmup rises linearly and reaches lr at its last step, so that no step trains with 0. After it the rate is
    constant, or follows a half cosine from lr down to min_lr_ratio · lr at the last step.
    """
    warmup = config.lr_warmup_steps
    if warmup is None:
        warmup = int(config.lr_warmup_ratio * total_steps)
    if step <= warmup:
        return config.lr * step / warmup
    if config.lr_scheduler_type == "constant":
        return config.lr
    floor = config.min_lr_ratio or 0.0
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    return config.lr * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))
