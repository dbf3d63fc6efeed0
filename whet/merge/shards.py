"""`model_world_size_W_rank_R.pt` of all ranks: which files there are, and whole tensors out of their pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from whet.errors import UserError
from whet.merge.pickles import Blocks, Held, Piece, Placement, read_rank

_FILE = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
# What wrappers of FSDP, activation checkpointing and torch.compile put into names.
_WRAPPERS = re.compile(r"(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\.")


def has_shards(folder: Path) -> bool:
    """Whether ranks have saved pieces of a model there."""
    return any(_FILE.fullmatch(path.name) for path in folder.iterdir())


def rank_files(folder: Path) -> list[Path]:
    """The file of every rank, in their order; a `UserError` where one is missing or runs of two sizes are mixed."""
    found = [(int(match[1]), int(match[2])) for path in folder.iterdir() if (match := _FILE.fullmatch(path.name))]
    worlds = sorted({world for world, _ in found})
    if len(worlds) != 1:
        raise UserError(
            f"{folder} holds model_world_size_W_rank_R.pt of {' and of '.join(map(str, worlds))} ranks, which are of "
            "different checkpoints; move those of one away"
        )
    (world,) = worlds
    missing = [rank for rank in range(world) if (world, rank) not in found]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"{folder / _name(world, missing[0])} is missing{more}: the files of all {world} ranks are needed, also "
            "those that other nodes wrote"
        )
    return [folder / _name(world, rank) for rank in range(world)]


def _name(world: int, rank: int) -> str:
    return f"model_world_size_{world}_rank_{rank}.pt"


@dataclass(frozen=True, slots=True)
class Shards:
    """What all ranks saved. Tensors stay in their files until they are asked for."""

    files: list[Path]
    ranks: list[dict[str, Held]]

    @classmethod
    def open(cls, files: list[Path], trust_pickles: bool = False) -> Shards:
        """Read the pickles of all ranks, but no weights."""
        ranks: list[dict[str, Held]] = []
        for file in files:
            held = {_WRAPPERS.sub("", name): value for name, value in read_rank(file, trust_pickles).items()}
            # FSDP gathers a full state on rank 0, and the others save an empty one.
            if not held and ranks:
                continue
            ranks.append(held)
            if held.keys() != ranks[0].keys():
                odd = sorted(held.keys() ^ ranks[0].keys())[0]
                raise UserError(f"{file} and {files[0]} do not hold the same weights: {odd} is in one of them only")
        if not ranks[0]:
            raise UserError(f"{files[0]} holds no weights")
        if len(ranks) not in (1, len(files)):
            raise UserError(f"{files[0].parent}: some ranks saved weights and others none")
        return cls(files, ranks)

    @property
    def names(self) -> list[str]:
        """Names of all tensors, as the model's modules had them."""
        return list(self.ranks[0])

    def dtype(self, name: str) -> torch.dtype:
        """The dtype in which a tensor was saved."""
        held = self.ranks[0][name]
        if isinstance(held, Tensor):
            return held.dtype
        if isinstance(held, Piece):
            return held.local.dtype
        return next(
            (tensor.dtype for rank in self.ranks for _, tensor in _blocks(rank[name])),
            torch.float32,
        )

    def shape(self, name: str, expected: Sequence[int]) -> tuple[int, ...]:
        """The shape of the whole tensor; of plain tensors that need not say, `expected` where it can be."""
        held = self.ranks[0][name]
        if not isinstance(held, Tensor):
            return held.shape
        if len(self.ranks) == 1 or tuple(held.shape) == tuple(expected) or not held.ndim:
            return tuple(held.shape)
        rows = sum(rank[name].shape[0] for rank in self.ranks)
        return (rows, *held.shape[1:])

    def tensor(self, name: str, expected: Sequence[int]) -> Tensor:
        """A whole tensor."""
        pieces = [rank[name] for rank in self.ranks]
        first = pieces[0]
        if any(type(piece) is not type(first) or piece.shape != first.shape for piece in pieces[1:]) and not isinstance(
            first, Tensor
        ):
            raise UserError(f"{self.files[0].parent}: the ranks do not agree about the shape of {name}")
        if isinstance(first, Tensor):
            return self._plain(name, expected)
        if isinstance(first, Blocks):
            return self._from_blocks(name, first.shape)
        return self._from_mesh(name, [piece for piece in pieces if isinstance(piece, Piece)])

    def _plain(self, name: str, expected: Sequence[int]) -> Tensor:
        """Copies that every rank has, or rows one after the other; shapes tell which."""
        tensors = [piece for rank in self.ranks if isinstance(piece := rank[name], Tensor)]
        if len(tensors) == 1:
            return tensors[0]
        if tuple(tensors[0].shape) != tuple(expected):
            return torch.cat(tensors)
        for file, tensor in zip(self.files, tensors):
            if not torch.equal(tensor, tensors[0]):
                raise UserError(f"{file} and {self.files[0]} hold different copies of {name}")
        return tensors[0]

    def _from_blocks(self, name: str, shape: tuple[int, ...]) -> Tensor:
        whole, filled = torch.empty(shape, dtype=self.dtype(name)), 0
        for rank in self.ranks:
            for offsets, tensor in _blocks(rank[name]):
                whole[tuple(slice(at, at + size) for at, size in zip(offsets, tensor.shape))] = tensor
                filled += tensor.numel()
        if filled != whole.numel():
            raise UserError(f"{self.files[0].parent}: the ranks hold {filled} of {whole.numel()} values of {name}")
        return whole

    def _from_mesh(self, name: str, pieces: list[Piece]) -> Tensor:
        placements = pieces[0].placements
        if any(piece.placements != placements for piece in pieces):
            raise UserError(f"{self.files[0].parent}: the ranks do not agree about how {name} is sharded")
        at: dict[tuple[int, ...], Tensor] = {}
        for rank, piece in enumerate(pieces):
            coordinate = (rank,) if piece.coordinate is None else piece.coordinate
            if len(coordinate) != len(placements):
                raise UserError(f"{self.files[rank]} does not say where in the mesh its piece of {name} lies")
            at.setdefault(coordinate, piece.local)
        mesh = tuple(max(index) + 1 for index in zip(*at))
        if at.keys() != set(product(*map(range, mesh))):
            raise UserError(f"{self.files[0].parent}: pieces of {name} are missing in a mesh of {mesh} ranks")
        for axis in _undoing(placements, name, self.files[0]):
            at = _joined(at, axis, placements[axis].dim)
        whole = at[(0,) * len(mesh)]
        if tuple(whole.shape) != pieces[0].shape:
            raise UserError(
                f"{self.files[0].parent}: the pieces of {name} make {tuple(whole.shape)} and not {pieces[0].shape}"
            )
        return whole


def _blocks(held: Held) -> tuple[tuple[tuple[int, ...], Tensor], ...]:
    assert isinstance(held, Blocks)
    return held.blocks


def _undoing(placements: tuple[Placement, ...], name: str, file: Path) -> list[int]:
    """Dimensions of the mesh in the order in which their shards are put together.

    Ranks cut a tensor along the first dimension of the mesh first, so that the last is undone first. A strided shard is
    FSDP's of what tensor parallelism, a later dimension, had cut before: it was cut last and is undone first.
    """
    for placement in placements:
        if placement.kind not in ("Shard", "_StridedShard", "Replicate"):
            raise UserError(f"{file}: {name} is a {placement.kind} tensor, which is not whole on any rank")
    strided = [axis for axis, placement in enumerate(placements) if placement.kind == "_StridedShard"]
    plain = [axis for axis in reversed(range(len(placements))) if axis not in strided]
    if len(strided) > 1:
        raise UserError(f"{file}: {name} is cut along {len(strided)} strided dimensions; only one can be put together")
    return strided + plain


def _joined(at: dict[tuple[int, ...], Tensor], axis: int, dim: int | None) -> dict[tuple[int, ...], Tensor]:
    """The same pieces with one dimension of the mesh less (it stays, of size 1); copies where `dim` is None."""
    rows: dict[tuple[int, ...], list[Tensor]] = {}
    for coordinate in sorted(at):
        rows.setdefault((*coordinate[:axis], 0, *coordinate[axis + 1 :]), []).append(at[coordinate])
    return {
        coordinate: tensors[0] if dim is None or len(tensors) == 1 else torch.cat(tensors, dim)
        for coordinate, tensors in rows.items()
    }
