"""Worker processes that score calls, each within its time; results come back whatever the calls do.

Calls come from any thread, at any time. One thread serves them while there are any. It waits for four things only: a
worker's message, a worker's end, the nearest deadline, or calls that come or are withdrawn. A call that overruns costs
its worker (killed and replaced) and nobody else. Where a worker fails that has scored other samples, one of those may
be to blame (a thread that ends the process later, a fork that answers too): the call is made once more, in a fresh
worker, and only what it does there counts.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from selectors import EVENT_READ, EVENT_WRITE, PollSelector

from whet.errors import UserError
from whet.rewards.calls import Backlog, Call, Done, Outcome, Task, outcome_of
from whet.rewards.inputs import TooLargeError, check_size
from whet.rewards.process import START_SECONDS, WorkerGoneError, WorkerProcess
from whet.rewards.setup import WorkerSetup
from whet.rewards.wire import REFUSED

FAILED_STARTS = 3  # in a row, before the rest of the calls are given up
LONGEST_WAIT = 3600.0  # seconds; more than 24 days would overflow what the system takes


class WorkerPool:
    """Up to `size` workers, started when first needed and kept between calls."""

    def __init__(self, setup: WorkerSetup, size: int) -> None:
        self._setup = setup
        self._size = max(1, size)
        self._workers: list[WorkerProcess] = []  # touched by the thread that serves, while there is one
        self._backlog = Backlog()
        self._failed_starts = 0
        self._start_error = ""
        self._lock = threading.Lock()  # held for moments: what follows
        self._arrived: list[Task] = []
        self._withdrawn: set[Task] = set()
        self._server: threading.Thread | None = None
        self._closed = False
        self._wake, self._bell = socket.socketpair()
        self._bell.setblocking(False)

    def start(self) -> tuple[bool, frozenset[str]]:
        """Make sure that a worker has loaded the function; returns whether it scores batches, and what it asks for.

        Called before any call is made.
        """
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
        return worker.batch, worker.wanted

    @contextlib.contextmanager
    def calling(self, calls: list[Call], done: Done) -> Iterator[None]:
        """Score calls. `done` gets each one's position and outcome as it ends, in the thread that serves the pool.

        Those that have not ended when the block is left are withdrawn, and cost the workers that make them.
        """
        tasks = [Task(call, position, done) for position, call in enumerate(calls)]
        with self._lock:
            if self._closed:
                raise RuntimeError("the reward workers have been ended")
            self._arrived += tasks
            self._serve()
        try:
            yield
        finally:
            with self._lock:
                if self._server is not None and not self._closed:  # else all have ended
                    self._withdrawn.update(tasks)
                    self._serve()

    def run(self, calls: list[Call], done: Callable[[int, Outcome], None]) -> None:
        """Score all calls; `done` gets each call's position and outcome, in the order they end."""
        ended: SimpleQueue[tuple[int, Outcome | BaseException]] = SimpleQueue()
        with self.calling(calls, lambda position, outcome: ended.put((position, outcome))):
            for _ in calls:
                position, outcome = ended.get()
                if isinstance(outcome, BaseException):
                    raise RuntimeError("the thread that serves the reward workers failed") from outcome
                done(position, outcome)

    def close(self) -> None:
        """End all workers, also hung ones, at once; no call may be made any more."""
        with self._lock:
            if self._closed:
                return
            server, self._closed = self._server, True
            self._ring()
        if server is not None:
            server.join()
        self._discard_all(self._workers)
        self._wake.close()
        self._bell.close()

    def _serve(self) -> None:
        """See that a thread serves the calls, and that it looks at them; the lock is held."""
        if self._server is None:
            self._failed_starts = 0
            self._server = threading.Thread(target=self._serve_until_idle, name="whet-rewards", daemon=True)
            self._server.start()
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it rings already
            self._bell.send(b"!")

    def _serve_until_idle(self) -> None:
        try:
            while self._take_changes():
                self._staff()
                self._assign()
                if all(worker.ready and worker.task is None for worker in self._workers):  # no worker can be started
                    while (left := self._backlog.take(fresh=True)) is not None:
                        left.done(left.position, Outcome(failure="died", detail=self._start_error, cause="start"))
                    continue
                for task, worker, outcome in self._collect():
                    if not (_is_doubtful(worker, outcome) and self._backlog.repeat(task)):
                        task.done(task.position, outcome)
        except BaseException as error:
            self._fail_all(error)

    def _take_changes(self) -> bool:
        """Let calls join and leave; False, and the thread ends, when there are none or the pool was closed."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
            gone, self._withdrawn = self._withdrawn, set()
        self._backlog.add(arrived)
        if gone:
            self._backlog.drop(gone)
            # A late reply must not be taken for the next call's.
            self._discard_all([worker for worker in self._workers if worker.task in gone])
        with self._lock:
            if self._closed:
                raise RuntimeError("the reward workers were ended while they scored")
            busy = len(self._backlog) or any(worker.task is not None for worker in self._workers)
            if busy or self._arrived or self._withdrawn:
                return True
            self._server = None
            return False

    def _fail_all(self, error: BaseException) -> None:
        """End every call with this error."""
        with self._lock:
            tasks, self._arrived = self._arrived, []
            self._withdrawn.clear()
            self._server = None
        busy = [worker for worker in self._workers if worker.task is not None]
        tasks += [worker.task for worker in busy if worker.task is not None]
        self._discard_all(busy)
        while (waiting := self._backlog.take(fresh=True)) is not None:
            tasks.append(waiting)
        for task in tasks:
            task.done(task.position, error)

    def _staff(self) -> None:
        """Part with workers that are no good, and start those that the waiting calls need."""
        for worker in [worker for worker in self._workers if worker.ready and worker.task is None]:
            if worker.is_last or not worker.is_sound():  # nobody's sample is lost by it
                self._discard(worker)
                if not worker.served:
                    self._fail_start("a worker process ended before its first call")
        free = [worker for worker in self._workers if worker.task is None]
        used = [worker for worker in free if worker.served]
        missing_fresh = self._backlog.need_fresh - (len(free) - len(used))
        if missing_fresh > 0 and used and len(self._workers) >= self._size:
            self._discard(used[0])
            free.remove(used[0])
        for _ in range(max(missing_fresh, len(self._backlog) - len(free))):
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

    def _assign(self) -> None:
        """Give calls to the workers that wait for one; those that cannot be given to any have failed."""
        for worker in self._workers:
            while worker.ready and worker.task is None and (task := self._backlog.take(not worker.served)) is not None:
                try:
                    check_size(task.call.inputs)
                    payload = pickle.dumps((task.call.seed, task.call.inputs, task.call.budget))
                except TooLargeError as error:
                    task.done(task.position, Outcome(failure="raised", detail=str(error), cause="media"))
                    continue
                except Exception as error:  # of what kind depends on what the row holds
                    why = f"the row cannot be given to a worker process: {type(error).__name__}: {error}"
                    task.done(task.position, Outcome(failure="raised", detail=why, cause="row"))
                    continue
                worker.call(task, payload, len(task.call.inputs), task.call.budget)

    def _collect(self) -> list[tuple[Task, WorkerProcess, Outcome]]:
        """Wait for the next message, deadline or change of the calls; returns the calls that ended with it."""
        waiting = [worker for worker in self._workers if not worker.ready or worker.task is not None]
        nearest = min(worker.deadline for worker in waiting) - time.monotonic()
        with PollSelector() as selector:
            selector.register(self._wake, EVENT_READ, None)
            for worker in waiting:
                selector.register(
                    worker.channel, EVENT_READ | (EVENT_WRITE if worker.channel.is_sending else 0), worker
                )
            events = {key.data: event for key, event in selector.select(min(max(0.0, nearest), LONGEST_WAIT))}
        if None in events:
            self._wake.recv(4096)
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
                assert worker.task is not None, "only workers with a call have outcomes"
                ended.append((worker.task, worker, outcome))
                worker.task = None
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
            return outcome_of(reply)
        if now < worker.deadline:
            return None
        stack = worker.where()
        self._discard(worker)
        return Outcome(failure="timeout", detail=stack, cause=_innermost(stack))

    def _fail_start(self, why: str) -> None:
        self._failed_starts += 1
        self._start_error = why

    def _discard_all(self, workers: list[WorkerProcess]) -> None:
        """End workers at the same time."""
        for worker in workers:
            worker.release()
        for worker in list(workers):
            self._discard(worker)

    def _discard(self, worker: WorkerProcess) -> None:
        worker.kill()
        if worker in self._workers:
            self._workers.remove(worker)


def _is_doubtful(worker: WorkerProcess, outcome: Outcome) -> bool:
    """True if an earlier call of the worker may be what made this one fail."""
    return worker.served > 0 and (outcome.failure == "died" or (outcome.failure == "timeout" and worker.is_busy))


def _innermost(stack: str) -> str:
    """The first frame of a stack as faulthandler writes it: file, line and function."""
    return next((line.strip() for line in stack.splitlines() if line.startswith("  File")), "")
