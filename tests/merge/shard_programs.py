"""What each rank does to leave the files that verl, EasyR1 and Skywork-OR1 leave: shard a model, save its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817
from torch.distributed.fsdp import (
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import AutoModelForCausalLM, PreTrainedModel

CPU = torch.device("cpu")
EVERYWHERE = ("fsdp2", "fsdp1", "easyr1")  # ways to cut that make sense with any number of ranks
SHARED = ("no_mesh", "full")  # with two or more
IN_FOURS = ("fsdp2_hybrid", "fsdp1_hybrid", "fsdp2_tensor_parallel")


def cut(source: Path, folder: Path, kinds: tuple[str, ...]) -> None:
    """Cut the model in `source` in every one of these ways, each into a folder of its own."""
    for kind in kinds:
        model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
        state = _STATES.get(kind, _fsdp1)(model, kind)
        (folder / kind).mkdir(parents=True, exist_ok=True)
        torch.save(state, folder / kind / f"model_world_size_{dist.get_world_size()}_rank_{dist.get_rank()}.pt")


def _mesh(kind: str) -> DeviceMesh:
    world = dist.get_world_size()
    if kind.endswith("hybrid"):
        return init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("ddp", "fsdp"))
    return init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))


def _fsdp2(model: PreTrainedModel, kind: str) -> dict[str, Any]:
    """verl with `strategy=fsdp2`."""
    mesh = _mesh(kind)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model.state_dict()


def _fsdp2_tensor_parallel(model: PreTrainedModel, kind: str) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("fsdp", "tp"))
    for layer in model.model.layers:
        plan = {
            "mlp.gate_proj": ColwiseParallel(),
            "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel(),
        }
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["fsdp"])
    fully_shard(model, mesh=mesh["fsdp"])
    return model.state_dict()


def _wrapped(model: PreTrainedModel, kind: str) -> FSDP:
    if kind == "no_mesh":
        return FSDP(model, device_id=CPU)
    strategy = ShardingStrategy.HYBRID_SHARD if kind.endswith("hybrid") else ShardingStrategy.FULL_SHARD
    return FSDP(model, device_id=CPU, device_mesh=_mesh(kind), sharding_strategy=strategy)


def _fsdp1(model: PreTrainedModel, kind: str) -> dict[str, Any]:
    """verl with `strategy=fsdp`, and Skywork-OR1."""
    wrapped = _wrapped(model, kind)
    with FSDP.state_dict_type(wrapped, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=False)):
        return wrapped.state_dict()


def _full(model: PreTrainedModel, kind: str) -> dict[str, Any]:
    """A state gathered on the first rank; the others save an empty one."""
    _fsdp2(model, kind)
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def _easyr1(model: PreTrainedModel, kind: str) -> dict[str, Any]:
    wrapped = _wrapped(model, kind)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    return get_state_dict(wrapped, optimizer, options=StateDictOptions(cpu_offload=True))[0]


_STATES = {
    "fsdp2": _fsdp2,
    "fsdp2_hybrid": _fsdp2,
    "fsdp2_tensor_parallel": _fsdp2_tensor_parallel,
    "easyr1": _easyr1,
    "full": _full,
}
