"""Worker processes that score calls, each within its time; results come back whatever the calls do.

The loop in `run` waits for three things only: a worker's message, a worker's end, or the nearest deadline. A call that
overruns costs its worker (killed and replaced) and nobody else.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from whet.errors import UserError
from whet.rewards.process import START_SECONDS, WorkerGoneError, WorkerProcess, WorkerSetup

FAILED_STARTS = 3  # in a row, before the rest of the calls are given up


@dataclass(frozen=True, slots=True)
class Call:
    """What one call of the function scores, and the seconds it may take."""

    seed: str
    inputs: list[dict[str, Any]]
    budget: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: one result per input, or the way it failed."""

    results: list[dict[str, Any]] = field(default_factory=list)  # {"scores": {...}} or {"bad": "..."} each
    failure: str = ""  # "raised", "timeout", "died", "bad result"; empty when there are results
    detail: str = ""  # the traceback, or what happened
    cause: str = ""  # equal for failures that need to be reported only once


class WorkerPool:
    """Up to `size` workers, started when first needed and kept between calls of `run`."""

    def __init__(self, setup: WorkerSetup, size: int) -> None:
        self._setup = setup
        self._size = max(1, size)
        self._workers: list[WorkerProcess] = []
        self._failed_starts = 0
        self._start_error = ""

    def start(self) -> bool:
        """Make sure that a worker has loaded the function; returns whether it scores whole batches."""
        worker = next((worker for worker in self._workers if worker.ready), None)
        if worker is None:
            worker = WorkerProcess(self._setup)
            self._workers.append(worker)
            try:
                wait([worker.channel], START_SECONDS)
                self._greet(worker)
            finally:
                if not worker.ready:
                    self._discard(worker)
            if not worker.ready:
                raise UserError(self._start_error)
        return worker.batch

    def run(self, calls: list[Call], done: Callable[[int, Outcome], None]) -> None:
        """Score all calls; `done` gets each call's position and outcome, in the order they finish."""
        queue = deque(range(len(calls)))
        self._failed_starts = 0
        try:
            while queue or any(worker.task is not None for worker in self._workers):
                self._staff(len(queue))
                self._assign(queue, calls)
                if not self._workers:
                    while queue:
                        done(queue.popleft(), Outcome(failure="died", detail=self._start_error, cause="start"))
                    break
                for task, outcome in self._collect():
                    done(task, outcome)
        finally:  # interrupted: a late reply must not be taken for the next call's
            for worker in [worker for worker in self._workers if worker.task is not None]:
                self._discard(worker)

    def close(self) -> None:
        """End all workers, also hung ones, at once."""
        for worker in list(self._workers):
            self._discard(worker)

    def _staff(self, waiting: int) -> None:
        for worker in [worker for worker in self._workers if worker.ready and not worker.is_alive()]:
            if worker.task is None:  # died between two calls: nobody's sample
                self._fail_start(worker, "a worker process ended while it was idle")
        free = sum(worker.task is None for worker in self._workers)
        while free < waiting and len(self._workers) < self._size and self._failed_starts < FAILED_STARTS:
            self._workers.append(WorkerProcess(self._setup))
            free += 1

    def _assign(self, queue: deque[int], calls: list[Call]) -> None:
        for worker in self._workers:
            if queue and worker.ready and worker.task is None:
                task = queue.popleft()
                payload = pickle.dumps((calls[task].seed, calls[task].inputs))
                worker.call(task, payload, calls[task].budget)

    def _collect(self) -> list[tuple[int, Outcome]]:
        """Wait for the next message or deadline; returns the calls that ended with it."""
        waiting = {w.channel: w for w in self._workers if not w.ready or w.task is not None}
        nearest = min(worker.deadline for worker in waiting.values())
        arrived = wait(list(waiting), max(0.0, nearest - time.monotonic()))
        now = time.monotonic()
        ended = []
        for channel, worker in waiting.items():
            if channel not in arrived and now < worker.deadline:
                continue
            if worker.task is None:
                self._greet(worker)
            else:
                ended.append((worker.task, self._finish(worker, channel in arrived)))
        return ended

    def _greet(self, worker: WorkerProcess) -> None:
        """Read a new worker's hello, or learn why it cannot work."""
        path = self._setup.source.path
        if not worker.channel.poll():
            self._fail_start(worker, f"{path} did not finish importing within {START_SECONDS:.0f} s")
            return
        try:
            hello = worker.receive()
        except WorkerGoneError as error:
            self._fail_start(worker, f"{path} could not be imported: {error}")
            return
        if "error" in hello:
            self._fail_start(worker, hello["error"])
            return
        worker.ready = True
        worker.batch = hello["batch"]

    def _finish(self, worker: WorkerProcess, arrived: bool) -> Outcome:
        if not arrived:
            stack = worker.where()
            self._discard(worker)
            return Outcome(failure="timeout", detail=stack, cause=_innermost(stack))
        try:
            reply = worker.receive()
        except WorkerGoneError as error:
            self._discard(worker)
            return Outcome(failure="died", detail=str(error), cause=str(error))
        worker.task = None
        self._failed_starts = 0
        if "results" in reply:
            return Outcome(results=reply["results"])
        if "bad" in reply:
            return Outcome(failure="bad result", detail=reply["bad"])
        return Outcome(failure="raised", detail=reply["raised"], cause=reply["cause"])

    def _fail_start(self, worker: WorkerProcess, why: str) -> None:
        self._failed_starts += 1
        self._start_error = why
        self._discard(worker)

    def _discard(self, worker: WorkerProcess) -> None:
        worker.kill()
        if worker in self._workers:
            self._workers.remove(worker)


def _innermost(stack: str) -> str:
    """The first frame of a stack as faulthandler writes it: file, line and function."""
    return next((line.strip() for line in stack.splitlines() if line.startswith("  File")), "")
