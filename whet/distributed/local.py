"""The group of one: a worker in this process. Nothing is serialised, no Ray is started, exceptions pass unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.distributed.group import Factory, Rank


class Finished:
    """A call that was made at once."""

    def __init__(self, results: list[Any]) -> None:
        self._results = results

    def done(self) -> bool:
        """True."""
        return True

    def wait(self) -> list[Any]:
        """The results."""
        return self._results


class LocalGroup:
    """One worker object, called directly."""

    size = 1

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self._closed = False

    def call(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """The method's result, in a list of one."""
        return [getattr(self.worker, method)(*args, **kwargs)]

    def scatter(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The method's result for the only tuple of arguments."""
        (only,) = arguments
        return self.call(method, *only)

    def start(self, method: str, *args: Any, **kwargs: Any) -> Finished:
        """The call is over when this returns: there is one thread of work."""
        return Finished(self.call(method, *args, **kwargs))

    def look(self) -> None:
        """Do nothing: the worker lives as long as this process."""

    def close(self) -> None:
        """The worker's own `close`, where it has one."""
        if not self._closed and hasattr(self.worker, "close"):
            self._closed = True
            self.worker.close()


def open_local(factory: Factory, device: str = "cpu") -> LocalGroup:
    """A worker in this process, built for a world of one."""
    return LocalGroup(factory(Rank(rank=0, world=1, local_rank=0, node=0, device=device)))
