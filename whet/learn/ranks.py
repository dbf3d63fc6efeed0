"""The processes that train one model together: which share of the samples is whose, and sums over all of them.

Every rank is given all samples and computes its own share of them; what comes back is whole on every rank. A model
that was not given ranks is trained by this process alone, and nothing here communicates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from whet.system import sealed

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """One process among those that hold a model.

    Where several compute the same share together (tensor and sequence parallelism), they are one rank each of different
    `group`s.
    """

    index: int = 0  # whose share of the samples is computed here; ranks that compute the same share have the same
    count: int = 1  # shares
    group: dist.ProcessGroup | None = None  # one rank for each share, over which results are added up
    everyone: dist.ProcessGroup | None = None  # all ranks that hold a part of the model
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # where this group can add up tensors
    sequence: dist.ProcessGroup | None = None  # ranks that compute the same share, each some tokens of every row

    @property
    def is_first(self) -> bool:
        """Whether this rank reads and writes files for all."""
        return self.everyone is None or dist.get_rank(self.everyone) == 0

    @classmethod
    def of_world(cls, device: torch.device) -> Ranks:
        """Every process of the world, each with a share of its own."""
        return cls(dist.get_rank(), dist.get_world_size(), dist.group.WORLD, dist.group.WORLD, device)

    def most(self, number: int) -> int:
        """The largest of a number over shares."""
        if self.group is None:
            return number
        found = torch.tensor(number, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.group)
        return int(found)

    def added(self, values: Tensor) -> Tensor:
        """The sum of a host tensor over shares, on the host."""
        if self.group is None:
            return values
        found = values.to(self.device)
        dist.all_reduce(found, group=self.group)
        return found.cpu()

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The norm of all gradients together, over the shards of all ranks; the same bits on every rank."""
        if self.everyone is None:
            return nn.utils.get_total_norm(gradients)
        count = dist.get_world_size(self.everyone)
        parts = [_own_norm(gradient, count).to(self.device) for gradient in gradients]
        squares = torch.stack(parts or [torch.zeros((), device=self.device)]).square().sum()
        dist.all_reduce(squares, group=self.everyone)
        return squares.sqrt()

    def collect(self, numbers: dict[str, float]) -> list[dict[str, float]]:
        """Numbers by name of every share; not all need to have the same names."""
        if self.group is None:
            return [numbers]
        return sealed.all_gather(numbers, self.group, self.device)

    def told(self, value: T) -> T:
        """The first rank's value, which can be pickled, on every rank."""
        if self.everyone is None:
            return value
        return cast(T, sealed.broadcast(value, self.everyone, device=self.device))

    def totals(self, numbers: dict[str, float]) -> dict[str, float]:
        """Sums over shares of numbers by name."""
        sums: dict[str, float] = {}
        for each in self.collect(numbers):
            for name, value in each.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums


def _own_norm(gradient: Tensor, count: int) -> Tensor:
    """The norm of this rank's shard among those of `count` ranks; of what r of them hold alike, that times 1/√r."""
    if not isinstance(gradient, DTensor):
        raise TypeError("a model of several ranks has sharded gradients")
    mesh = gradient.device_mesh
    shards = math.prod(mesh.size(i) for i, place in enumerate(gradient.placements) if not place.is_replicate())
    return torch.linalg.vector_norm(gradient.to_local(), dtype=torch.float32) / math.sqrt(count / shards)


_RANKS: WeakKeyDictionary[nn.Module, Ranks] = WeakKeyDictionary()


def train_together(model: nn.Module, ranks: Ranks) -> None:
    """Let these ranks share the work on a model from now on."""
    _RANKS[model] = ranks


def ranks_of(model: nn.Module) -> Ranks:
    """The ranks that share the work on a model: this process alone unless told otherwise."""
    return _RANKS.get(model, Ranks())
