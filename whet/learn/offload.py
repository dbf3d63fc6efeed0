"""Offloading: weights and optimizer states are kept in host memory while other phases of a step use their device.

Tensors stay the same objects: only the storage behind them is resized to 0, and filled again before they are used. So
views of one storage (fused projections), shards and tied parameters need no special case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor, nn

from whet.model.gathering import local

P = ParamSpec("P")
T = TypeVar("T")


class Offload:
    """Tensors that are on their device inside `here` and, if they `wait`, in host memory otherwise.

    Tensors that are `fixed` never change, so that one copy of them stays in host memory for good.
    """

    def __init__(self, tensors: Callable[[], Iterable[Tensor]], wait: bool, fixed: bool = False) -> None:
        self._tensors, self.wait, self._fixed = tensors, wait, fixed
        self._inside = 0
        self._away: list[tuple[torch.UntypedStorage, Tensor]] = []
        self._copies: list[tuple[torch.UntypedStorage, Tensor]] = []  # of fixed tensors

    @contextmanager
    def here(self) -> Iterator[None]:
        """Have all tensors on their device inside the block; blocks may be nested."""
        self._inside += 1
        self._bring()
        try:
            yield
        finally:
            self._inside -= 1
            if self.wait and not self._inside:
                self._put_away()

    def _bring(self) -> None:
        for storage, kept in self._away:
            storage.resize_(kept.numel())
            _bytes_of(storage).copy_(kept)
        self._away = []

    def _put_away(self) -> None:
        self._away = self._copies or self._copied()
        self._copies = self._away if self._fixed else []
        for storage, _ in self._away:
            storage.resize_(0)
        if any(storage.device.type == "cuda" for storage, _ in self._away):
            torch.cuda.empty_cache()  # for other processes on the device; this one would reuse the memory anyway

    def _copied(self) -> list[tuple[torch.UntypedStorage, Tensor]]:
        """Copy all storages of the tensors to host memory, each once."""
        with torch.no_grad():
            storages = {each.data_ptr(): each for each in (local(t).untyped_storage() for t in self._tensors())}
        copied = []
        for storage in storages.values():
            if storage.nbytes() and storage.resizable() and movable(storage):
                kept = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=storage.device.type == "cuda")
                copied.append((storage, kept.copy_(_bytes_of(storage))))
        return copied


class HoldsWeights(Protocol):
    """An object whose weights may be offloaded."""

    offload: Offload


class HoldsOptimizer(Protocol):
    """An object whose optimizer state may be offloaded."""

    optimizer_offload: Offload


W = TypeVar("W", bound=HoldsWeights)
S = TypeVar("S", bound=HoldsOptimizer)


def with_weights_on_device(method: Callable[Concatenate[W, P], T]) -> Callable[Concatenate[W, P], T]:
    """Have the weights on their device while a method runs."""

    @wraps(method)
    def run(self: W, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.offload.here():
            return method(self, *args, **kwargs)

    return run


def with_optimizer_on_device(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Have the optimizer's state on its device while a method runs."""

    @wraps(method)
    def run(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.optimizer_offload.here():
            return method(self, *args, **kwargs)

    return run


def of_weights(model: nn.Module, wait: bool, fixed: bool = False) -> Offload:
    """Return the offload of a model's parameters: of a sharded model its shards, never what it gathers later."""
    held = list(model.parameters())
    return Offload(lambda: held, wait, fixed)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Iterate over the state tensors of the parameters that an optimizer has updated."""
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))


def movable(storage: torch.UntypedStorage) -> bool:
    """Return True unless the storage is in host memory already."""
    return storage.device.type != "cpu"


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
