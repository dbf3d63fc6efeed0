"""The processes that train one model together: which share of the samples is whose, and sums over all of them.

Every rank is given all samples and computes its own share of them; what comes back is whole on every rank. A model
that was not given ranks is trained by this process alone, and nothing here communicates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """One process among those that hold a model."""

    index: int = 0  # whose share of the samples is computed here; ranks that compute the same share have the same
    count: int = 1  # shares
    group: dist.ProcessGroup | None = None  # all ranks that hold the model; None with several means the whole world
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # where this group can add up tensors

    @property
    def is_first(self) -> bool:
        """Whether this rank reads and writes files for all."""
        return not self.several or dist.get_rank(self.group) == 0

    @property
    def several(self) -> bool:
        """Whether there are other ranks at all."""
        return self.group is not None or self.count > 1

    def most(self, number: int) -> int:
        """The largest of a number over ranks."""
        if not self.several:
            return number
        found = torch.tensor(number, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.group)
        return int(found)

    def added(self, values: Tensor) -> Tensor:
        """The sum of a host tensor over ranks, on the host."""
        if not self.several:
            return values
        found = values.to(self.device)
        dist.all_reduce(found, group=self.group)
        return found.cpu()

    def collect(self, numbers: dict[str, float]) -> list[dict[str, float]]:
        """Numbers by name of every rank; not all need to have the same names."""
        if not self.several:
            return [numbers]
        found: list[dict[str, float]] = [{} for _ in range(dist.get_world_size(self.group))]
        dist.all_gather_object(found, numbers, group=self.group)
        return found

    def told(self, value: T) -> T:
        """The first rank's value, which can be pickled, on every rank."""
        if not self.several:
            return value
        box: list[T | None] = [value]
        dist.broadcast_object_list(box, group=self.group, group_src=0, device=self.device)
        return cast(T, box[0])

    def totals(self, numbers: dict[str, float]) -> dict[str, float]:
        """Sums over ranks of numbers by name."""
        sums: dict[str, float] = {}
        for each in self.collect(numbers):
            for name, value in each.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums


_RANKS: WeakKeyDictionary[nn.Module, Ranks] = WeakKeyDictionary()


def train_together(model: nn.Module, ranks: Ranks) -> None:
    """Let these ranks share the work on a model from now on."""
    _RANKS[model] = ranks


def ranks_of(model: nn.Module) -> Ranks:
    """The ranks that share the work on a model: this process alone unless told otherwise."""
    return _RANKS.get(model, Ranks())
