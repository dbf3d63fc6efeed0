"""The process of one replica: an engine that is given requests and asked for samples in calls of a moment each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from whet.distributed import Rank
from whet.distributed.failure import Failure, failure_of
from whet.rollout.engine import EngineGoneError, SamplingParams, Start
from whet.rollout.loop_thread import LoopThread
from whet.training.models import RankPlan
from whet.training.sampler import SamplerWorker
from whet.types import Sample


@dataclass(frozen=True, slots=True)
class Request:
    """A call of `Engine.sample` on its way to a replica."""

    number: int
    start: Start
    params: SamplingParams
    sample_id: int


@dataclass(frozen=True, slots=True)
class Orders:
    """Everything that the caller wants of a replica since it asked last."""

    requests: Sequence[Request] = ()
    dropped: Sequence[int] = ()  # numbers of requests whose samples nobody waits for
    aborted: Sequence[int] | None = ()  # sample ids that are to end as they are; None = all


@dataclass(frozen=True, slots=True)
class Answer:
    """The samples of a request, or why there are none."""

    number: int
    samples: list[Sample] = field(default_factory=list)
    failure: Failure | None = None


@dataclass(frozen=True)
class ReplicaPlan:
    """The run's plan, for a replica."""

    plan: RankPlan

    def __call__(self, rank: Rank) -> ReplicaWorker:
        """Build the worker, in the process it lives in."""
        return ReplicaWorker(self.plan, rank)


class ReplicaWorker(SamplerWorker):
    """Samples in a thread of its own, so that every call returns soon."""

    def __init__(self, plan: RankPlan, rank: Rank) -> None:
        super().__init__(plan, rank)
        self._loop = LoopThread("replica")
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by number; only the loop's thread touches them
        self._answers: list[Answer] = []
        self._answered = threading.Condition()
        self._still = ExitStack()  # holds the engine while its weights are not whole

    def exchange(self, orders: Orders, seconds: float) -> list[Answer]:
        """Take requests, and return what is finished: at once if anything is, else within so many seconds."""
        engine = self._engine
        if engine is None:
            return []
        for request in orders.requests:
            self._loop.soon(partial(self._begin, request))
        for number in orders.dropped:
            self._loop.soon(partial(self._drop, number))
        if orders.aborted is None or orders.aborted:
            engine.abort(orders.aborted)
        with self._answered:
            self._answered.wait_for(lambda: self._answers, seconds)
            answers, self._answers = self._answers, []
        if engine.failure is not None:
            raise EngineGoneError(engine.failure)
        return answers

    def receive_weights(self, link: str, version: int, everything: bool) -> None:
        """Take weights while no token is drawn; samples that are being written wait, and go on with them.

        If the weights do not arrive whole the engine stands still until others do.
        """
        self._halt()
        super().receive_weights(link, version, everything)
        self._still.close()

    def receive_weights_again(self, link: str, version: int) -> bool:
        """Take all weights of a version that others have, if the sender still has them."""
        if self._engine is None:
            return True
        self._halt()
        if not self._links[link].heard():
            return False
        self.receive_weights(link, version, everything=True)
        return True

    def close(self) -> None:
        """End what the engine started."""
        self._loop.stop()
        super().close()

    def _halt(self) -> None:
        if self._engine is not None:
            self._still.close()
            self._still.enter_context(self._engine.pause())

    def _begin(self, request: Request) -> None:
        self._tasks[request.number] = asyncio.get_running_loop().create_task(self._sample(request))

    def _drop(self, number: int) -> None:
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()

    async def _sample(self, request: Request) -> None:
        assert self._engine is not None
        try:
            samples = await self._engine.sample(request.start, request.params, request.sample_id)
            answer = Answer(request.number, samples)
        except Exception as error:
            answer = Answer(request.number, failure=failure_of(error))
        self._tasks.pop(request.number, None)
        with self._answered:
            self._answers.append(answer)
            self._answered.notify_all()
