"""The processes that train one model together: the share of samples of each, and sums over shares.

Every rank is given all samples and computes its own share of them; results are whole on every rank. A model without
ranks is trained by this process alone, and nothing here communicates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process among those that hold a model.

    Ranks that compute the same share together (tensor and sequence parallelism) are in different `group`s.
    """

    index: int = 0  # the share of the samples that is computed here (data-parallel rank)
    count: int = 1  # number of shares (data-parallel size)
    group: dist.ProcessGroup | None = None  # one rank of each share, over which results are summed
    world: dist.ProcessGroup | None = None  # all ranks that hold a part of the model
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # of tensors that are communicated
    sequence: dist.ProcessGroup | None = None  # ranks that compute the same share, each a slice of every packed row

    @property
    def is_first(self) -> bool:
        """True for the rank that reads and writes files for all."""
        return self.world is None or dist.get_rank(self.world) == 0

    @classmethod
    def of_world(cls, device: torch.device) -> Ranks:
        """Return the ranks of all processes, each with a share of its own."""
        return cls(dist.get_rank(), dist.get_world_size(), dist.group.WORLD, dist.group.WORLD, device)

    def maximum(self, number: int) -> int:
        """Return the maximum of a number over shares."""
        if self.group is None:
            return number
        found = torch.tensor(number, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.group)
        return int(found)

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum of a host tensor over shares, on the host."""
        if self.group is None:
            return values
        found = values.to(self.device)
        dist.all_reduce(found, group=self.group)
        return found.cpu()

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the norm of all gradients together, over the shards of all ranks; the same bits on every rank."""
        if self.world is None:
            return nn.utils.get_total_norm(gradients)
        count = dist.get_world_size(self.world)
        parts = [_own_norm(gradient, count).to(self.device) for gradient in gradients]
        squares = torch.stack(parts or [torch.zeros((), device=self.device)]).square().sum()
        dist.all_reduce(squares, group=self.world)
        return squares.sqrt()

    def gathered(self, numbers: dict[str, float]) -> list[dict[str, float]]:
        """Return the numbers of every share; names may differ between shares."""
        if self.group is None:
            return [numbers]
        from whet.system import sealed

        return sealed.all_gather(numbers, self.group, self.device)

    def broadcast(self, value: T) -> T:
        """Return the first rank's value, which is pickled, on every rank."""
        if self.world is None:
            return value
        from whet.system import sealed

        first: T = sealed.broadcast(value, self.world, device=self.device)
        return first

    def totals(self, numbers: dict[str, float]) -> dict[str, float]:
        """Return the sums over shares of numbers by name."""
        sums: dict[str, float] = {}
        for each in self.gathered(numbers):
            for name, value in each.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums


def _own_norm(gradient: Tensor, count: int) -> Tensor:
    """Return the norm of this rank's shard, times 1/√r if r of the `count` ranks hold the same shard."""
    if not isinstance(gradient, DTensor):
        raise TypeError("a model of several ranks has sharded gradients")
    mesh = gradient.device_mesh
    shards = math.prod(mesh.size(i) for i, place in enumerate(gradient.placements) if not place.is_replicate())
    return torch.linalg.vector_norm(gradient.to_local(), dtype=torch.float32) / math.sqrt(count / shards)


_RANKS: WeakKeyDictionary[nn.Module, Ranks] = WeakKeyDictionary()


def set_ranks(model: nn.Module, ranks: Ranks) -> None:
    """Have these ranks share the work on a model from now on."""
    _RANKS[model] = ranks


def ranks_of(model: nn.Module) -> Ranks:
    """Return the ranks that share the work on a model: this process alone unless `set_ranks` was called."""
    return _RANKS.get(model, Ranks())
