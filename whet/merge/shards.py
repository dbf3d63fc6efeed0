"""`model_world_size_W_rank_R.pt` of all ranks: which files there are, and whole tensors out of their pieces."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from whet.errors import UserError
from whet.merge.pickles import Blocks, Held, Piece, Placement, read_rank
from whet.model.trust import check_link

_FILE = re.compile(r"model_world_size_([0-9]+)_rank_([0-9]+)\.pt")
_MOST_RANKS = 100_000
# What wrappers of FSDP, activation checkpointing and torch.compile put into names.
_WRAPPERS = re.compile(r"(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\.")


def has_shards(folder: Path) -> bool:
    """Return True if the folder holds shards of a model."""
    return any(_FILE.fullmatch(path.name) for path in folder.iterdir())


def rank_files(folder: Path) -> list[Path]:
    """The file of every rank, in their order; a `UserError` where one is missing or runs of two sizes are mixed."""
    found = dict(_ranks(folder))
    worlds = sorted({world for world, _ in found})
    if len(worlds) != 1:
        raise UserError(
            f"{folder} holds model_world_size_W_rank_R.pt of {' and of '.join(map(str, worlds))} ranks, which are of "
            "different checkpoints; move those of one away"
        )
    (world,) = worlds
    missing = world - len(found)
    if missing:
        first = next(rank for rank in range(world) if (world, rank) not in found)
        more = f" and {missing - 1} more" if missing > 1 else ""
        raise UserError(
            f"{folder / _name(world, first)} is missing{more}: the files of all {world} ranks are needed, also "
            "those that other nodes wrote"
        )
    for path in found.values():
        check_link(path, folder)
    return [found[world, rank] for rank in range(world)]


def _ranks(folder: Path) -> Iterator[tuple[tuple[int, int], Path]]:
    """World size and rank by the name of each file; a `UserError` where a name makes no sense."""
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match is None:
            continue
        if max(len(match[1]), len(match[2])) > len(str(_MOST_RANKS)) or int(match[1]) > _MOST_RANKS:
            raise UserError(f"{path} is by its name of {match[1][:30]} ranks, which no run has; move it away")
        world, rank = int(match[1]), int(match[2])
        if rank >= world or path.name != _name(world, rank):
            raise UserError(f"{path}: the ranks of {world} are called 0 to {world - 1}; move the file away")
        yield (world, rank), path


def _name(world: int, rank: int) -> str:
    return f"model_world_size_{world}_rank_{rank}.pt"


@dataclass(frozen=True, slots=True)
class Shards:
    """Shards of all ranks; tensors stay in their files until they are asked for."""

    files: list[Path]
    ranks: list[dict[str, Held]]

    @classmethod
    def open(cls, files: list[Path], trust_pickles: bool = False) -> Shards:
        """Read the pickles of all ranks, but no weights."""
        ranks: list[dict[str, Held]] = []
        for file in files:
            read = read_rank(file, trust_pickles)
            held = {_WRAPPERS.sub("", name): value for name, value in read.items()}
            if len(held) != len(read):
                raise UserError(f"{file} holds two weights of one name: {_twice(list(read))}")
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
        made = cls(files, ranks)
        for name in made.names:
            made._check_kinds(name)
        return made

    def _check_kinds(self, name: str) -> None:
        """A `UserError` unless all ranks hold a weight in one way, in one dtype and as a part of one shape."""
        pieces = [rank[name] for rank in self.ranks]
        first = pieces[0]
        if any(type(piece) is not type(first) for piece in pieces):
            raise UserError(f"{self.files[0].parent}: the ranks do not agree about how {name} is sharded")
        if not isinstance(first, Tensor) and any(piece.shape != first.shape for piece in pieces):
            raise UserError(f"{self.files[0].parent}: the ranks do not agree about the shape of {name}")
        dtypes = {tensor.dtype for piece in pieces for tensor in _tensors(piece)}
        if len(dtypes) > 1:
            kinds = " and ".join(sorted(map(str, dtypes)))
            raise UserError(f"{self.files[0].parent}: the ranks hold {name} as {kinds}, and so of different runs")

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
        shapes = [tuple(rank[name].shape) for rank in self.ranks]
        if any(shape[1:] != shapes[0][1:] for shape in shapes):
            raise UserError(f"{self.files[0].parent}: the ranks do not agree about the shape of {name}")
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def tensor(self, name: str, expected: Sequence[int]) -> Tensor:
        """A whole tensor."""
        pieces = [rank[name] for rank in self.ranks]
        first = pieces[0]
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
            if not same_bits(tensor, tensors[0]):
                raise UserError(f"{file} and {self.files[0]} hold different copies of {name}")
        return tensors[0]

    def _from_blocks(self, name: str, shape: tuple[int, ...]) -> Tensor:
        whole, filled = torch.empty(shape, dtype=self.dtype(name)), torch.zeros(shape, dtype=torch.bool)
        for file, rank in zip(self.files, self.ranks):
            for offsets, tensor in _blocks(rank[name]):
                region = tuple(slice(at, at + size) for at, size in zip(offsets, tensor.shape))
                if filled[region].any():
                    raise UserError(f"{file} holds a part of {name} that another rank holds as well")
                whole[region], filled[region] = tensor, True
        if not filled.all():
            count = int(filled.sum())
            raise UserError(f"{self.files[0].parent}: the ranks hold {count} of {whole.numel()} values of {name}")
        return whole

    def _from_mesh(self, name: str, pieces: list[Piece]) -> Tensor:
        placements = pieces[0].placements
        if any(piece.placements != placements for piece in pieces):
            raise UserError(f"{self.files[0].parent}: the ranks do not agree about how {name} is sharded")
        at: dict[tuple[int, ...], Tensor] = {}
        for rank, piece in enumerate(pieces):
            coordinate = (rank,) if piece.coordinate is None else piece.coordinate
            if len(coordinate) != len(placements) or not placements:
                raise UserError(f"{self.files[rank]} does not say where in the mesh its piece of {name} lies")
            if not same_bits(at.setdefault(coordinate, piece.local), piece.local):
                raise UserError(f"{self.files[rank]} and another rank hold different copies of a piece of {name}")
        mesh = tuple(max(index) + 1 for index in zip(*at))
        if math.prod(mesh) != len(at):  # all coordinates are below those of the mesh: as many are all of them
            raise UserError(f"{self.files[0].parent}: pieces of {name} are missing in a mesh of {mesh} ranks")
        for axis in _undoing(placements, name, self.files[0]):
            at = _joined(at, axis, placements[axis].dim, f"{self.files[0].parent}: {name}")
        whole = at[(0,) * len(mesh)]
        if tuple(whole.shape) != pieces[0].shape:
            raise UserError(
                f"{self.files[0].parent}: the pieces of {name} make {tuple(whole.shape)} and not {pieces[0].shape}"
            )
        return whole


def same_bits(one: Tensor, other: Tensor) -> bool:
    """True if two tensors are the same, NaN included."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))


def _twice(names: list[str]) -> str:
    plain = [_WRAPPERS.sub("", name) for name in names]
    return next(name for name in plain if plain.count(name) > 1)


def _tensors(held: Held) -> list[Tensor]:
    if isinstance(held, Blocks):
        return [tensor for _, tensor in held.blocks]
    return [held.local if isinstance(held, Piece) else held]


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


def _joined(at: dict[tuple[int, ...], Tensor], axis: int, dim: int | None, what: str) -> dict[tuple[int, ...], Tensor]:
    """The same pieces with one dimension of the mesh less (it stays, of size 1); copies where `dim` is None."""
    rows: dict[tuple[int, ...], list[Tensor]] = {}
    for coordinate in sorted(at):
        rows.setdefault((*coordinate[:axis], 0, *coordinate[axis + 1 :]), []).append(at[coordinate])
    if dim is None and any(not same_bits(tensors[0], other) for tensors in rows.values() for other in tensors[1:]):
        raise UserError(f"{what}: ranks that should hold copies hold different ones, as of different checkpoints")
    try:
        return {
            coordinate: tensors[0] if dim is None or len(tensors) == 1 else torch.cat(tensors, dim)
            for coordinate, tensors in rows.items()
        }
    except (RuntimeError, IndexError) as error:
        raise UserError(f"{what}: its pieces do not fit together ({str(error).partition(chr(10))[0]})") from None
