"""The file of one rank, read without running anything that it pickles.

torch's `weights_only` reader asks a table what a pickled name means. Names of distributed tensors mean records here
that keep what they are given and do nothing else. So no process group is needed, and files of other versions of torch,
whose classes lie elsewhere and keep other things inside, can be read as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whet.errors import UserError
from whet.merge.safetensors_file import CODES
from whet.model import torch_file

FLAG = "--trust-pickles"


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of a tensor over one dimension of a mesh of ranks."""

    kind: str  # Shard, _StridedShard, Replicate, Partial
    dim: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One rank's part of a DTensor."""

    shape: tuple[int, ...]  # of the whole tensor
    local: Tensor
    placements: tuple[Placement, ...]  # one for each dimension of the mesh
    coordinate: tuple[int, ...] | None  # of the rank in the mesh; None where the file does not say


@dataclass(frozen=True, slots=True)
class Blocks:
    """One rank's part of a ShardedTensor, FSDP's older kind: blocks and their offsets in the whole."""

    shape: tuple[int, ...]
    blocks: tuple[tuple[tuple[int, ...], Tensor], ...]


Held = Tensor | Piece | Blocks


class _Record:
    """An object of a class that is not built: its name, and what the pickle says of it."""

    name = ""

    def __new__(cls, *given: Any) -> _Record:
        made = super().__new__(cls)
        made.given = given
        return made

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                vars(self).update(part)


class _Tensor(Tensor):
    """A distributed tensor that is none: torch makes it with the shape of the whole, and it keeps its state."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise TypeError("a record of a distributed tensor computes nothing")

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _DTensor(_Tensor):
    pass


class _ShardedTensor(_Tensor):
    ProcessGroupState = _Record  # a class inside it that its pickles name


def _attribute(owner: Any, name: str) -> type[_Record]:
    """Replace `getattr`, by which a ShardedTensor names a class inside its own."""
    return _Record


def _record(name: str) -> type[_Record]:
    return type(f"_{name.strip('_')}", (_Record,), {"name": name})


def _known() -> dict[str, Any]:
    """Map pickled names to classes, for every place that a version of torch had them in."""
    known: dict[str, Any] = {"builtins.getattr": _attribute, "whet.merge.pickles._Record": _Record}
    for package in ("torch.distributed.tensor", "torch.distributed._tensor"):
        known |= {f"{package}{module}.DTensor": _DTensor for module in ("", ".api", "._api")}
        for name in ("Shard", "_StridedShard", "Replicate", "Partial", "_Partial", "DTensorSpec", "TensorMeta"):
            kind = _record(name)
            known |= {f"{package}.{module}.{name}": kind for module in ("placement_types", "_dtensor_spec")}
        known[f"{package}._dtensor_spec.ShardOrderEntry"] = _record("ShardOrderEntry")
    shard = "torch.distributed._shard"
    known[f"{shard}.sharded_tensor.api.ShardedTensor"] = _ShardedTensor
    for place in (
        "torch.distributed.device_mesh.DeviceMesh",
        "torch.distributed._mesh_layout._MeshLayout",
        "torch.distributed._mesh_layout._FlatLayout",
        "torch.distributed.remote_device._remote_device",
        f"{shard}.metadata.ShardMetadata",
        f"{shard}.sharded_tensor.shard.Shard",
        f"{shard}.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
        f"{shard}.sharded_tensor.metadata.ShardedTensorMetadata",
        f"{shard}.sharded_tensor.metadata.TensorProperties",
        f"{shard}.sharding_spec.api.EnumerableShardingSpec",
        f"{shard}.sharding_spec.chunk_sharding_spec.ChunkShardingSpec",
    ):
        known[place] = _record(place.rpartition(".")[2])
    return known


_KNOWN = _known()


def read_rank(file: Path, trust_pickles: bool = False) -> dict[str, Held]:
    """Read a rank's tensors by name; they stay in the file until they are used."""
    try:
        found = torch_file.load(file, _KNOWN, trust_pickles, mapped=True)
    except torch_file.PickledCodeError as error:
        hint = "" if trust_pickles else f". If you trust whoever made the file, add {FLAG}"
        raise UserError(f"{error}{hint}") from None
    if not isinstance(found, dict):
        raise UserError(f"{file} holds a {type(found).__name__} and no state of a model")
    if any(not isinstance(name, str) or not name.isprintable() for name in found):
        raise UserError(f"{file} holds weights whose names are no text that can be printed")
    return {name: _held(file, name, value) for name, value in found.items() if isinstance(value, Tensor)}


def _held(file: Path, name: str, value: Tensor) -> Held:
    """A weight of a rank; other values of a state are what modules keep beside their weights, and left out."""
    try:
        if isinstance(value, _DTensor):
            return _piece(value)
        if isinstance(value, _ShardedTensor):
            return _pieces(value)
        return _plain(value)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{file}: {name} is sharded in a way that this version cannot read ({error!r})") from None


def _piece(value: _DTensor) -> Piece:
    # Slots come as the second of two, after an empty __dict__.
    parts = value.state if isinstance(value.state, tuple) else (value.state,)
    state = {key: item for part in parts if part for key, item in part.items()}
    spec = state["_spec"]
    at = getattr(spec.mesh, "_coordinate_on_dim", None)
    piece = Piece(
        tuple(value.shape),
        _plain(state["_local_tensor"]),
        tuple(_placement(item) for item in spec.placements),
        None if at is None else tuple(_count(i) for i in at),
    )
    dims = [placement.dim for placement in piece.placements if placement.dim is not None]
    if any(dim >= len(piece.shape) for dim in dims) or piece.local.ndim != len(piece.shape):
        raise ValueError(f"a piece of shape {tuple(piece.local.shape)} of {piece.shape}, cut along {dims}")
    return piece


def _placement(item: _Record) -> Placement:
    dim = getattr(item, "dim", None)
    return Placement(str(item.name), None if dim is None else _count(dim))


def _pieces(value: _ShardedTensor) -> Blocks:
    shape = tuple(value.shape)
    blocks = []
    for shard in value.state[0]:
        block, at = _plain(shard.tensor), tuple(_count(i) for i in shard.metadata.shard_offsets)
        if len(at) != len(shape) or any(i + n > size for i, n, size in zip(at, block.shape, shape, strict=True)):
            raise ValueError(f"a block of shape {tuple(block.shape)} at {at} in a tensor of shape {shape}")
        blocks.append((at, block))
    return Blocks(shape, tuple(blocks))


def _plain(value: Tensor) -> Tensor:
    """A tensor of numbers on the CPU that can be written to a file."""
    if type(value) not in (Tensor, nn.Parameter) or value.layout is not torch.strided or value.device.type != "cpu":
        raise TypeError(f"a {type(value).__name__} with the layout {value.layout} on {value.device}")
    if value.dtype not in CODES:
        raise TypeError(f"numbers of the kind {value.dtype}")
    return value.detach().resolve_neg()


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} in place of a number")
    return value
