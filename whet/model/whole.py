"""Tensors and models that are sharded over devices, as a whole for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from whet.model.gathering import METHOD, sharded_modules

_FREEING: WeakSet[nn.Module] = WeakSet()  # modules that free their parameters between forward and backward


def let_gather(model: nn.Module) -> None:
    """Make `gathered_pass` gather for this model, which `fully_shard` has just been called on."""
    setattr(model, METHOD, lambda forward: forward())
    register_fsdp_forward_method(model, METHOD)


def note_frees(module: nn.Module, frees: bool) -> None:
    """Remember what `fully_shard` was told of a module, which `whole` suspends."""
    if frees:
        _FREEING.add(module)


@contextmanager
def whole(model: nn.Module) -> Iterator[None]:
    """Every rank holds all parameters inside, in the dtype of passes, and may make passes without the others.

    Entering is a collective call. For sampling: parameters must not be changed and gradients not be made inside.
    """
    modules = sharded_modules(model)
    with torch.no_grad():
        for module in modules:
            module.unshard()
            module.set_reshard_after_forward(False, recurse=False)
        _gather_cut(model)
        try:
            yield
        finally:
            for module in modules:
                module.set_reshard_after_forward(module in _FREEING, recurse=False)
                module.reshard()


def _gather_cut(model: nn.Module) -> None:
    """Put whole parameters where a tensor-parallel group has cut ones, until FSDP puts its shards there."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if isinstance(p, DTensor):
                if p not in made:
                    made[p] = nn.Parameter(full(p.detach()), requires_grad=False)
                setattr(module, name, made[p])


def full(tensor: Tensor) -> Tensor:
    """All of a tensor; every rank must ask."""
    if not isinstance(tensor, DTensor):
        return tensor
    value = sendable(tensor.to_local())
    for mesh, dim, shape in reversed(_cuts(tensor)):
        stride = torch.empty(shape, device="meta").stride()
        value = DTensor.from_local(value, mesh, [Shard(dim)], shape=shape, stride=stride).full_tensor()
    return value.view(tensor.dtype)


def own_part(whole: Tensor, of: DTensor) -> Tensor:
    """Return this rank's part of a whole tensor, cut as another is distributed; nothing is sent."""
    for mesh, dim, _ in _cuts(of):
        whole = distribute_tensor(whole, mesh, [Shard(dim)], src_data_rank=None).to_local()
    return whole


def _cuts(tensor: DTensor) -> list[tuple[DeviceMesh, int, torch.Size]]:
    """Return the order in which a tensor was cut: ranks of a mesh, dimension, shape before the cut.

    A tensor-parallel group comes last in a mesh and has cut first; FSDP shards what it left.
    """
    mesh, shape = tensor.device_mesh, list(tensor.shape)
    found = []
    for i in reversed(range(mesh.ndim)):
        dim: int | None = getattr(tensor.placements[i], "dim", None)
        if dim is not None:
            over = mesh if mesh.ndim == 1 else mesh[(mesh.mesh_dim_names or ())[i]]
            found.append((over, dim, torch.Size(shape)))
            chunk = -(-shape[dim] // over.size())
            shape[dim] = max(0, min(chunk, shape[dim] - chunk * over.get_local_rank()))
    return found


def sendable(tensor: Tensor) -> Tensor:
    """The same bits in a dtype that gloo and NCCL know: neither has 16-bit integers."""
    return tensor.view(torch.bfloat16) if tensor.dtype == torch.int16 else tensor
