"""Protocol of a group of workers: `call` them all, `scatter` work over them, or `start` and wait later.

A worker is any object with plain methods. Its class decides nothing about processes: the factory that builds it is told
its `Rank` and runs in the process that the worker lives in, after torch.distributed was joined where there are several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Rank:
    """A worker's place in its group."""

    rank: int
    world: int
    local_rank: int  # among the ranks of its machine
    node: int
    device: str  # "cpu", or "cuda:0" over Ray, where a process sees no device but its own


Factory = Callable[[Rank], Any]


class Pending(Protocol):
    """Calls under way."""

    def done(self) -> bool:
        """Return True if every rank has finished; do not wait."""

    def wait(self) -> list[Any]:
        """The results by rank; raises what a worker raised, or `WorkerLostError` when one died or hangs."""


class Group(Protocol):
    """Workers that are called together. Over Ray, arguments and results are pickled: tensors belong on the CPU."""

    size: int

    def call(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """The same arguments to every rank; results by rank."""

    def scatter(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """One tuple of arguments for each rank; results by rank."""

    def start(self, method: str, *args: Any, **kwargs: Any) -> Pending:
        """Call a method on all ranks without waiting."""

    def look(self) -> None:
        """Raise `WorkerLostError` where a worker is gone, whether it had work or not."""

    def close(self) -> None:
        """End the workers, by their own `close` where they have one; a second time does nothing."""
