"""Weights and optimizer states that wait in host memory while others use their device.

Tensors stay the objects they are: only the memory behind them is given back, and taken again before they are used. So
views of one piece of memory (fused projections), shards and tied parameters need no care of their own.
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
    """Tensors that are on their device inside `here`, and in host memory otherwise where they `wait`."""

    def __init__(self, tensors: Callable[[], Iterable[Tensor]], wait: bool) -> None:
        self._tensors, self._wait = tensors, wait
        self._inside = 0
        self._away: list[tuple[torch.UntypedStorage, Tensor]] = []

    @contextmanager
    def here(self) -> Iterator[None]:
        """Everything is on its device inside; what is in host memory already stays there."""
        self._inside += 1
        self._bring()
        try:
            yield
        finally:
            self._inside -= 1
            if self._wait and not self._inside:
                self._put_away()

    def _bring(self) -> None:
        for storage, kept in self._away:
            storage.resize_(kept.numel())
            _bytes_of(storage).copy_(kept)
        self._away = []

    def _put_away(self) -> None:
        with torch.no_grad():
            storages = {each.data_ptr(): each for each in (local(t).untyped_storage() for t in self._tensors())}
        for storage in storages.values():
            if storage.nbytes() and storage.resizable() and movable(storage):
                pinned = storage.device.type == "cuda"
                kept = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=pinned)
                kept.copy_(_bytes_of(storage))
                storage.resize_(0)
                self._away.append((storage, kept))
        if any(storage.device.type == "cuda" for storage, _ in self._away):
            torch.cuda.empty_cache()  # for other processes on the device: this one would reuse it anyway


class Offloadable(Protocol):
    """Something whose methods need its weights."""

    offload: Offload


R = TypeVar("R", bound=Offloadable)


def with_weights_on_device(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Have the weights on their device while a method runs."""

    @wraps(method)
    def run(self: R, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.offload.here():
            return method(self, *args, **kwargs)

    return run


def of_weights(model: nn.Module, wait: bool) -> Offload:
    """The offload of a model's parameters; of a sharded one they are its shards, whatever it has gathered later."""
    held = list(model.parameters())
    return Offload(lambda: held, wait)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """What an optimizer remembers of its parameters, as far as it has seen them."""
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))


def movable(storage: torch.UntypedStorage) -> bool:
    """Whether memory is not the host's own already."""
    return storage.device.type != "cpu"


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
