"""Worker processes that score calls, each within its time; results come back whatever the calls do.

The loop in `run` waits for three things only: a worker's message, a worker's end, or the nearest deadline. A call that
overruns costs its worker (killed and replaced) and nobody else. Where a worker fails that has scored other samples, one
of those may be to blame (a thread that ends the process later, a fork that answers too): the call is made once more, in
a fresh worker, and only what it does there counts.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from selectors import EVENT_READ, EVENT_WRITE, PollSelector
from typing import Any

from whet.errors import UserError
from whet.rewards.process import START_SECONDS, WorkerGoneError, WorkerProcess, WorkerSetup
from whet.rewards.result import check_scores
from whet.rewards.wire import BAD, REFUSED, RESULTS, Reply, Result

FAILED_STARTS = 3  # in a row, before the rest of the calls are given up
LONGEST_WAIT = 3600.0  # seconds; more than 24 days would overflow what the system takes


@dataclass(frozen=True, slots=True)
class Call:
    """What one call of the function scores, and the seconds it may take."""

    seed: bytes
    inputs: list[dict[str, Any]]
    budget: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: one result per input, or the way it failed."""

    results: list[Result] = field(default_factory=list)
    failure: str = ""  # "raised", "timeout", "died", "bad result"; empty when there are results
    detail: str = ""  # the traceback, or what happened
    cause: str = ""  # equal for failures that need to be reported only once


class Backlog:
    """Calls that wait for a worker: those that any may have, and those that a fresh one must have."""

    def __init__(self, count: int) -> None:
        self._any = deque(range(count))
        self._fresh: deque[int] = deque()
        self._repeated: set[int] = set()

    def __len__(self) -> int:
        return len(self._any) + len(self._fresh)

    @property
    def need_fresh(self) -> int:
        """Calls that only a fresh worker may have."""
        return len(self._fresh)

    def take(self, fresh: bool) -> int | None:
        """The next call for such a worker."""
        if fresh and self._fresh:
            return self._fresh.popleft()
        return self._any.popleft() if self._any else None

    def repeat(self, task: int) -> bool:
        """Have a call made once more, by a fresh worker; False when that has been done already."""
        if task in self._repeated:
            return False
        self._repeated.add(task)
        self._fresh.append(task)
        return True


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
            try:
                self._add_worker()
                while any(not worker.ready for worker in self._workers):
                    self._collect()
            finally:
                for worker in [worker for worker in self._workers if not worker.ready]:
                    self._discard(worker)
            if not self._workers:
                raise UserError(self._start_error)
            worker = self._workers[0]
        return worker.batch

    def run(self, calls: list[Call], done: Callable[[int, Outcome], None]) -> None:
        """Score all calls; `done` gets each call's position and outcome, in the order they finish."""
        backlog = Backlog(len(calls))
        self._failed_starts = 0
        try:
            while backlog or any(worker.task is not None for worker in self._workers):
                self._staff(backlog)
                for task, outcome in self._assign(backlog, calls):
                    done(task, outcome)
                if all(worker.ready and worker.task is None for worker in self._workers):  # no worker can be started
                    while (left := backlog.take(fresh=True)) is not None:
                        done(left, Outcome(failure="died", detail=self._start_error, cause="start"))
                    break
                for worker, outcome in self._collect():
                    assert worker.task is not None, "only workers with a call have outcomes"
                    task, worker.task = worker.task, None
                    if not (_is_doubtful(worker, outcome) and backlog.repeat(task)):
                        done(task, outcome)
        finally:  # interrupted: a late reply must not be taken for the next call's
            for worker in [worker for worker in self._workers if worker.task is not None]:
                self._discard(worker)

    def close(self) -> None:
        """End all workers, also hung ones, at once."""
        for worker in self._workers:
            worker.release()
        for worker in list(self._workers):
            self._discard(worker)

    def _staff(self, backlog: Backlog) -> None:
        """Part with workers that are no good, and start those that the waiting calls need."""
        for worker in [worker for worker in self._workers if worker.ready and worker.task is None]:
            if worker.is_last or not worker.is_sound():  # nobody's sample is lost by it
                self._discard(worker)
                if not worker.served:
                    self._fail_start("a worker process ended before its first call")
        free = [worker for worker in self._workers if worker.task is None]
        used = [worker for worker in free if worker.served]
        missing_fresh = backlog.need_fresh - (len(free) - len(used))
        if missing_fresh > 0 and used and len(self._workers) >= self._size:
            self._discard(used[0])
            free.remove(used[0])
        for _ in range(max(missing_fresh, len(backlog) - len(free))):
            if len(self._workers) >= self._size or self._failed_starts >= FAILED_STARTS:
                break
            self._add_worker()

    def _add_worker(self) -> None:
        try:
            self._workers.append(WorkerProcess(self._setup))
        except OSError as error:
            if self._workers:
                self._size = len(self._workers)  # as many as the system allows
            else:
                self._fail_start(f"no worker process could be started: {error}")

    def _assign(self, backlog: Backlog, calls: list[Call]) -> list[tuple[int, Outcome]]:
        """Give calls to the workers that wait for one; returns those that cannot be given to any."""
        refused = []
        for worker in self._workers:
            while worker.ready and worker.task is None and (task := backlog.take(not worker.served)) is not None:
                call = calls[task]
                try:
                    payload = pickle.dumps((call.seed, call.inputs))
                except Exception as error:  # of what kind depends on what the row holds
                    why = f"the row cannot be given to a worker process: {type(error).__name__}: {error}"
                    refused.append((task, Outcome(failure="raised", detail=why, cause="row")))
                    continue
                worker.call(task, payload, len(call.inputs), call.budget)
        return refused

    def _collect(self) -> list[tuple[WorkerProcess, Outcome]]:
        """Wait for the next message or deadline; returns the workers whose calls ended with it."""
        waiting = [worker for worker in self._workers if not worker.ready or worker.task is not None]
        nearest = min(worker.deadline for worker in waiting) - time.monotonic()
        with PollSelector() as selector:
            for worker in waiting:
                selector.register(
                    worker.channel, EVENT_READ | (EVENT_WRITE if worker.channel.is_sending else 0), worker
                )
            events = {key.data: event for key, event in selector.select(min(max(0.0, nearest), LONGEST_WAIT))}
        now = time.monotonic()
        ended = []
        for worker in waiting:
            if events.get(worker, 0) & EVENT_WRITE:
                worker.channel.go_on()
            if not events.get(worker, 0) & EVENT_READ and now < worker.deadline:
                continue
            if not worker.ready:
                self._greet(worker, now)
            elif (outcome := self._finish(worker, now)) is not None:
                ended.append((worker, outcome))
        return ended

    def _greet(self, worker: WorkerProcess, now: float) -> None:
        """Read a new worker's hello, or learn why it cannot work."""
        path = self._setup.source.path
        try:
            reply = worker.receive()
            if reply is None and now >= worker.deadline:
                self._fail_start(f"{path} did not finish importing within {START_SECONDS:.0f} s")
                self._discard(worker)
            elif reply is not None and reply.kind == REFUSED:
                self._fail_start(reply.text)
                self._discard(worker)
        except WorkerGoneError as error:
            self._fail_start(f"{path} could not be imported: {error}")
            self._discard(worker)

    def _finish(self, worker: WorkerProcess, now: float) -> Outcome | None:
        """Read how a worker's call ended; None when it has not."""
        try:
            reply = worker.receive()
        except WorkerGoneError as error:
            self._discard(worker)
            return Outcome(failure="died", detail=str(error), cause=str(error))
        if reply is not None:
            self._failed_starts = 0
            return _outcome(reply)
        if now < worker.deadline:
            return None
        stack = worker.where()
        self._discard(worker)
        return Outcome(failure="timeout", detail=stack, cause=_innermost(stack))

    def _fail_start(self, why: str) -> None:
        self._failed_starts += 1
        self._start_error = why

    def _discard(self, worker: WorkerProcess) -> None:
        worker.kill()
        if worker in self._workers:
            self._workers.remove(worker)


def _is_doubtful(worker: WorkerProcess, outcome: Outcome) -> bool:
    """True if an earlier call of the worker may be what made this one fail."""
    return worker.served > 0 and (outcome.failure == "died" or (outcome.failure == "timeout" and worker.is_busy))


def _outcome(reply: Reply) -> Outcome:
    if reply.kind == RESULTS:
        return Outcome(
            [check_scores(result) or result if isinstance(result, dict) else result for result in reply.results]
        )
    if reply.kind == BAD:
        return Outcome(failure="bad result", detail=reply.text)
    return Outcome(failure="raised", detail=reply.text, cause=reply.cause)


def _innermost(stack: str) -> str:
    """The first frame of a stack as faulthandler writes it: file, line and function."""
    return next((line.strip() for line in stack.splitlines() if line.startswith("  File")), "")
