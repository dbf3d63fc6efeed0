"""Finite checks of a model's parameters: one reduction per tensor, and one exchange between ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from whet.learn.ranks import ranks_of
from whet.model.gathering import local, part


@torch.no_grad()
def broken_weights(model: nn.Module, trained_only: bool = False) -> list[str]:
    """Names of parameters that hold a NaN or an infinity in the shard of any rank; every rank must ask."""
    part(model)
    chosen = [(name, local(p)) for name, p in model.named_parameters() if p.requires_grad or not trained_only]
    if not chosen:
        return []
    # The largest magnitude is NaN or inf exactly if some value is; squares of large finite values would overflow.
    peaks = [torch.linalg.vector_norm(p, ord=float("inf")).float() if p.numel() else p.new_zeros(()) for _, p in chosen]
    broken = ~torch.isfinite(torch.stack([peak.float() for peak in peaks]))
    ranks = ranks_of(model)
    if ranks.everyone is not None:
        flags = broken.to(ranks.device, torch.int32)
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=ranks.everyone)
        broken = flags.bool()
    return [name for (name, _), is_broken in zip(chosen, broken.tolist()) if is_broken]
