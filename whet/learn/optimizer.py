"""The optimizer, its learning rate as a function of the training step, and the precision of gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from whet.config.schema.model import OptimConfig
from whet.errors import UserError
from whet.learn.ranks import ranks_of
from whet.model.gathering import local, part


def build_optimizer(
    params: Iterable[nn.Parameter], config: OptimConfig, model: nn.Module | None = None
) -> torch.optim.Optimizer:
    """Return AdamW, or its Kahan-summed form for bf16 parameters, which would round small updates of AdamW to 0.

    Frozen parameters, such as all but the adapters under LoRA, have no state. Muon needs the `model` that the
    parameters belong to, to know its matrices from its embeddings.
    """
    params, betas = [p for p in params if p.requires_grad], (config.betas[0], config.betas[1])
    if config.strategy == "muon":
        return _muon(params, config, model)
    if config.strategy == "adamw_8bit":
        from whet.learn.eight_bit import EightBitAdamW

        return EightBitAdamW(params, lr=config.lr, betas=betas, weight_decay=config.weight_decay)
    if config.strategy == "adamw_bf16" or any(p.dtype == torch.bfloat16 for p in params):
        from whet.learn.kahan import KahanAdamW

        return KahanAdamW(params, lr=config.lr, betas=betas, weight_decay=config.weight_decay)
    return torch.optim.AdamW(params, lr=config.lr, betas=betas, weight_decay=config.weight_decay, fused=True)


def _muon(params: list[nn.Parameter], config: OptimConfig, model: nn.Module | None) -> torch.optim.Optimizer:
    from whet.learn.muon import MuonAdamW, hidden_matrices

    assert model is not None, "which parameters are matrices of layers is read from the model"
    if any(p.dtype == torch.bfloat16 for p in params):
        raise UserError(
            "worker.actor.optim.strategy=muon updates the weights as they are, and in bf16 small updates would round "
            "to 0; set worker.actor.fsdp.torch_dtype=fp32 (and the critic's), or the strategy to adamw"
        )
    matrices = hidden_matrices(model)
    return MuonAdamW([p for p in params if p in matrices], [p for p in params if p not in matrices], config)


def sum_gradients_in_fp32(params: Iterable[nn.Parameter]) -> None:
    """Have the gradients of bf16 parameters add up in fp32 over micro-batches, if this torch can (2.11 and later)."""
    for p in params:
        if p.requires_grad and p.dtype == torch.bfloat16 and hasattr(p, "grad_dtype"):
            # FSDP sets the gradients of its shards itself, in their own dtype, and adds to whatever is there
            p.grad_dtype = None if isinstance(p, DTensor) else torch.float32


def widen_gradients(params: Iterable[nn.Parameter]) -> None:
    """Convert the bf16 gradients of shards to fp32, so that later micro-batches are added to them in fp32.

    Does something after the first micro-batch of a mini-batch only: later gradients are added to fp32 ones.
    """
    for p in params:
        narrow = isinstance(p, DTensor) and p.grad is not None and p.grad.dtype == torch.bfloat16
        if narrow and p.grad is not None and getattr(p, "grad_dtype", torch.bfloat16) is None:
            p.grad = p.grad.float()


def learning_rate(step: int, total_steps: int, config: OptimConfig) -> float:
    """Return the learning rate of training step `step` (the first is 1).

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


@torch.no_grad()
def broken_weights(model: nn.Module, trained_only: bool = False) -> list[str]:
    """Return the names of parameters that hold NaN or infinity in any rank's shard; every rank must call it."""
    part(model)
    chosen = [(name, local(p)) for name, p in model.named_parameters() if p.requires_grad or not trained_only]
    if not chosen:
        return []
    # The largest magnitude is NaN or inf exactly if some value is; squares of large finite values would overflow.
    peaks = [torch.linalg.vector_norm(p, ord=float("inf")).float() if p.numel() else p.new_zeros(()) for _, p in chosen]
    broken = ~torch.isfinite(torch.stack([peak.float() for peak in peaks]))
    ranks = ranks_of(model)
    if ranks.world is not None:
        flags = broken.to(ranks.device, torch.int32)
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=ranks.world)
        broken = flags.bool()
    return [name for (name, _), is_broken in zip(chosen, broken.tolist()) if is_broken]
