"""Parallel layout of a model: data parallel by samples, sequence parallel by tokens, tensor parallel inside layers.

Ranks are numbered through tensor groups first (those communicate most, and neighbours are on one machine), then through
sequence groups, then through shares of the samples: rank = (share · sequence + slice) · tensor + part. FSDP shards over
all but the tensor group: ranks that share a row hold the same parameters, and their gradients are summed as those of
shares are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from transformers import PretrainedConfig

from whet.config.schema.model import FSDPConfig
from whet.errors import UserError
from whet.learn.ranks import Ranks
from whet.learn.tensor_parallel import plan_of


@dataclass(frozen=True)
class ParallelLayout:
    """Device meshes of FSDP shards and of tensor parallelism, and this rank's share of the samples."""

    shards: DeviceMesh
    tensor: DeviceMesh | None
    ranks: Ranks


def lay_out(
    fsdp: FSDPConfig, device: torch.device, tensor: int = 1, sequence: int = 1, part: str = "actor"
) -> ParallelLayout:
    """Return the layout of all ranks; every rank must call it."""
    world = dist.get_world_size()
    if world % (tensor * sequence):
        raise UserError(
            f"worker.{part}.tensor_parallel_size={tensor} x worker.{part}.ulysses_size={sequence} does not divide the "
            f"{world} devices"
        )
    over, size = world // tensor, fsdp.fsdp_size
    if size not in (-1, over) and over % size:
        fitting = ", ".join(str(n) for n in range(1, over + 1) if over % n == 0)
        apart = f" in each tensor-parallel place ({world} in all)" if tensor > 1 else ""
        raise UserError(
            f"worker.{part}.fsdp.fsdp_size={size} does not divide the {over} devices{apart}: use -1 or one of {fitting}"
        )
    names = ("shard",) if size in (-1, over) else ("replicate", "shard")
    shape = (over,) if size in (-1, over) else (over // size, size)
    ranks = _shares(device, world // tensor // sequence, sequence, tensor)
    if tensor == 1:
        return ParallelLayout(init_device_mesh(device.type, shape, mesh_dim_names=names), None, ranks)
    mesh = init_device_mesh(device.type, (*shape, tensor), mesh_dim_names=(*names, "tensor"))
    return ParallelLayout(mesh[names], mesh["tensor"], ranks)


def _shares(device: torch.device, count: int, sequence: int, tensor: int) -> Ranks:
    """Return which of `count` shares of the samples this rank computes, and with which other ranks."""
    if sequence == tensor == 1:
        return Ranks.of_world(device)
    names = ("data", "sequence", "tensor")
    grid = init_device_mesh(device.type, (count, sequence, tensor), mesh_dim_names=names)
    row = grid.get_group("sequence") if sequence > 1 else None
    return Ranks(grid.get_local_rank("data"), count, grid.get_group("data"), dist.group.WORLD, device, row)


def check_sizes(model: PretrainedConfig, tensor: int, sequence: int, part: str = "actor") -> None:
    """Raise a `UserError` unless a model of this shape can be divided so; no weights are loaded."""
    keys = {f"worker.{part}.tensor_parallel_size": tensor, f"worker.{part}.ulysses_size": sequence}
    text = model.get_text_config()
    for key, size in keys.items():
        if size > 1 and text is not model:
            raise UserError(f"{key}={size}: models with a vision encoder cannot be divided so; leave it at 1")
    if tensor > 1:
        plan_of(model)
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    experts = getattr(text, "num_experts", None) or getattr(text, "num_local_experts", None)
    counts = {"attention heads": heads, "key-value heads": kv_heads} | ({"experts": experts} if experts else {})
    for name, count in counts.items():
        if count % tensor:
            key = f"worker.{part}.tensor_parallel_size"
            raise UserError(
                f"{key}={tensor}: the model has {count} {name}, which it must divide: set one of "
                f"{_fitting(range(1, min(heads, kv_heads) + 1), list(counts.values()))}"
            )
    local, local_kv = heads // tensor, kv_heads // tensor
    if not _shares_heads(local, local_kv, sequence):
        key, fits = f"worker.{part}.ulysses_size", [n for n in range(1, local + 1) if _shares_heads(local, local_kv, n)]
        cut = f" on each of {tensor} tensor-parallel devices" if tensor > 1 else ""
        raise UserError(
            f"{key}={sequence}: the model has {local} attention heads and {local_kv} key-value heads{cut}, which it "
            f"must divide: set one of {', '.join(map(str, fits))}"
        )


def _shares_heads(heads: int, kv_heads: int, sequence: int) -> bool:
    """Return True if heads can be divided over sequence ranks; too few key-value heads are repeated."""
    return heads % sequence == 0 and (kv_heads % sequence == 0 or sequence % kv_heads == 0)


def _fitting(sizes: range, counts: list[int]) -> str:
    return ", ".join(str(n) for n in sizes if all(count % n == 0 for count in counts))
