"""The trainer's side of one replica: requests go out and samples come back in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from whet.distributed import Group
from whet.errors import UserError, WorkerLostError, WorkerRaisedError
from whet.rollout.engine import SamplingParams, Start
from whet.training.replicas.worker import Answer, Orders, Request
from whet.types import Sample

_POLL = 0.2  # seconds that a replica may take to say that nothing is finished
_IDLE = 1.0  # seconds between two looks at one that has nothing to do


class ReplicaLostError(Exception):
    """A replica died with requests that another can take."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A caller who waits for samples."""

    loop: asyncio.AbstractEventLoop
    samples: asyncio.Future[list[Sample]]
    count: int


class Replica:
    """One engine on devices of its own; lost once its process is, never to return."""

    def __init__(self, number: int, group: Group, on_lost: Callable[[Replica, Exception], None]) -> None:
        """`number` is its place among the replicas; `on_lost` is called once, in this replica's thread."""
        self.number, self.group, self._on_lost = number, group, on_lost
        self.held: int | None = None  # the version of its weights; None until it has any
        self.lost = False
        self._asked: dict[int, _Asked] = {}
        self._requests: list[Request] = []
        self._dropped: list[int] = []
        self._aborted: set[int] | None = set()
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"replica-{number}", daemon=True)
        self._thread.start()

    @property
    def load(self) -> int:
        """Samples that it was asked for and has not given."""
        return sum(asked.count for asked in list(self._asked.values()))

    async def sample(self, start: Start, params: SamplingParams, sample_id: int) -> list[Sample]:
        """Return n samples of one start; raise `ReplicaLostError` if the replica is lost before."""
        loop = asyncio.get_running_loop()
        asked = _Asked(loop, loop.create_future(), params.n)
        with self._changed:
            if self.lost or self._closing:
                raise ReplicaLostError
            number = next(self._numbers)
            self._asked[number] = asked
            self._requests.append(Request(number, start, params, sample_id))
            self._changed.notify_all()
        try:
            return await asked.samples
        except asyncio.CancelledError:
            with self._changed:
                if self._asked.pop(number, None) is not None:
                    self._dropped.append(number)
                    self._changed.notify_all()
            raise

    def abort(self, sample_ids: Collection[int] | None) -> None:
        """Have samples end as they are, all or those of some ids."""
        with self._changed:
            if sample_ids is None or self._aborted is None:
                self._aborted = None
            else:
                self._aborted |= set(sample_ids)
            self._changed.notify_all()

    def lose(self, error: Exception) -> None:
        """End the replica; whoever waits for samples of it is told."""
        with self._changed:
            if self.lost:
                return
            self.lost, self.held = True, None
            asked, self._asked = self._asked, {}
        with contextlib.suppress(Exception):  # it may be gone altogether
            self.group.close()
        for each in asked.values():
            _settle(each, ReplicaLostError())
        self._on_lost(self, error)

    def close(self) -> None:
        """End the replica, and wait for its thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(2 * _IDLE)

    def _run(self) -> None:
        try:
            while (orders := self._orders()) is not None:
                if orders.requests or orders.dropped or orders.aborted != [] or self._asked:
                    for answer in self.group.call("exchange", orders, _POLL)[0]:
                        self._take(answer)
                else:
                    self.group.look()
        except (WorkerLostError, WorkerRaisedError, UserError, RuntimeError) as error:
            if not self._closing:
                self.lose(error)

    def _orders(self) -> Orders | None:
        """Return what there is to tell the replica; None when this is closed."""
        with self._changed:
            if not (self._closing or self._requests or self._dropped or self._aborted != set() or self._asked):
                self._changed.wait(_IDLE)
            if self._closing:
                return None
            orders = Orders(self._requests, self._dropped, None if self._aborted is None else sorted(self._aborted))
            self._requests, self._dropped, self._aborted = [], [], set()
            return orders

    def _take(self, answer: Answer) -> None:
        with self._changed:
            asked = self._asked.pop(answer.number, None)
        if asked is not None:
            _settle(asked, answer.failure.error(0, f"replica {self.number}") if answer.failure else answer.samples)


def _settle(asked: _Asked, result: list[Sample] | Exception) -> None:
    def give() -> None:
        if asked.samples.done():  # the caller was cancelled
            return
        if isinstance(result, Exception):
            asked.samples.set_exception(result)
        else:
            asked.samples.set_result(result)

    with contextlib.suppress(RuntimeError):  # the caller's loop has closed: nobody waits any more
        asked.loop.call_soon_threadsafe(give)
