"""The file of one rank, read without running anything that it pickles.

torch's `weights_only` reader asks a table what a pickled name means. Names of distributed tensors mean records here
that keep what they are given and do nothing else. So no process group is needed, and files of other versions of torch,
whose classes lie elsewhere and keep other things inside, can be read as well.
"""

from __future__ import annotations

import pickle
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whet.errors import UserError

FLAG = "--trust-pickles"


@dataclass(frozen=True, slots=True)
class Placement:
    """What one dimension of a mesh of ranks does to a tensor."""

    kind: str  # Shard, _StridedShard, Replicate, Partial
    dim: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What one rank holds of a DTensor."""

    shape: tuple[int, ...]  # of the whole tensor
    local: Tensor
    placements: tuple[Placement, ...]  # one for each dimension of the mesh
    coordinate: tuple[int, ...] | None  # of the rank in the mesh; None where the file does not say


@dataclass(frozen=True, slots=True)
class Blocks:
    """What one rank holds of a ShardedTensor, FSDP's older kind: blocks, and where they begin in the whole."""

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
    """In place of `getattr`, by which a ShardedTensor names a class inside its own."""
    return _Record


def _record(name: str) -> type[_Record]:
    return type(f"_{name.strip('_')}", (_Record,), {"name": name})


def _known() -> dict[str, Any]:
    """What pickled names mean, in every place where a version of torch has had them."""
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
    """What a rank saved, by name; tensors stay in the file until they are used."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's, about pickles and storages
            found = _load(file, trust_pickles)
    except pickle.UnpicklingError as error:
        raise UserError(_refusal(file, error)) from None
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{file} could not be read: it is cut short, or no file of torch.save ({reason})") from None
    if not isinstance(found, dict):
        raise UserError(f"{file} holds a {type(found).__name__} and no state of a model")
    return {str(name): _held(file, str(name), value) for name, value in found.items() if _is_weight(value)}


def _load(file: Path, trust_pickles: bool) -> Any:
    if trust_pickles:
        return torch.load(file, map_location="cpu", mmap=True, weights_only=False, pickle_module=_trusting())
    with _only_known_names():
        return torch.load(file, map_location="cpu", mmap=True, weights_only=True)


@contextmanager
def _only_known_names() -> Iterator[None]:
    """Our meanings instead of torch's own, which would build process groups and change between versions."""
    before = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([(meaning, name) for name, meaning in _KNOWN.items()])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _trusting() -> Any:
    """A pickle module that builds everything, but distributed tensors as records."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            meaning = _KNOWN.get(f"{module}.{name}")
            return super().find_class(module, name) if meaning in (None, _attribute) else meaning

    module = types.ModuleType("trusting_pickle")
    module.Unpickler = Unpickler  # type: ignore[attr-defined]
    module.load = pickle.load  # type: ignore[attr-defined]
    return module


def _refusal(file: Path, error: Exception) -> str:
    try:
        with _only_known_names():
            unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception:  # a pickle of another kind: the names in it cannot be listed
        unsafe = []
    if not unsafe:
        return f"{file} could not be read without running what it pickles ({str(error).partition('.')[0]})"
    return (
        f"{file} pickles {', '.join(sorted(unsafe)[:3])}, and reading it would run that code. If you trust whoever "
        f"made the file, add {FLAG}"
    )


def _is_weight(value: Any) -> bool:
    return isinstance(value, Tensor)  # others are states that modules keep beside their weights


def _held(file: Path, name: str, value: Tensor) -> Held:
    try:
        if isinstance(value, _DTensor):
            return _piece(value)
        if isinstance(value, _ShardedTensor):
            local = value.state[0]
            return Blocks(
                tuple(value.shape), tuple((tuple(s.metadata.shard_offsets), s.tensor.detach()) for s in local)
            )
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise UserError(f"{file}: {name} is sharded in a way that this version cannot read ({error!r})") from None
    return value.detach()


def _piece(value: _DTensor) -> Piece:
    # Slots come as the second of two, after an empty __dict__.
    parts = value.state if isinstance(value.state, tuple) else (value.state,)
    state = {key: item for part in parts if part for key, item in part.items()}
    spec = state["_spec"]
    at = getattr(spec.mesh, "_coordinate_on_dim", None)
    return Piece(
        tuple(value.shape),
        state["_local_tensor"].detach(),
        tuple(Placement(item.name, getattr(item, "dim", None)) for item in spec.placements),
        None if at is None else tuple(int(i) for i in at),
    )
