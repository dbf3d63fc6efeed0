"""Daemon threads for blocking calls that may never return."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

IDLE_SECONDS = 10.0  # after which a thread without work ends
BUSY_SECONDS = 0.2  # of processor time that tell a call that computes from one that waits


class _Ended(SystemExit):
    """Raised in the thread of a call that was given up; a SystemExit ends a thread without a word."""


@dataclass(slots=True, eq=False)
class Job:
    """A blocking call: waiting for a thread (no `started`), in one, done, or given up."""

    work: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future)
    started: float | None = None  # of `time.monotonic`
    thread: int | None = None
    computed: float = 0.0  # processor time of the thread when the call began
    given_up: bool = False
    guard: threading.Lock = field(default_factory=threading.Lock)  # of `returned`
    returned: bool = False

    def where(self) -> str:
        """Return file and line at which a running call stands, or ""."""
        frame = sys._current_frames().get(self.thread or 0)
        if frame is None:
            return ""
        last = traceback.extract_stack(frame)[-1]
        return f"{last.filename}:{last.lineno} in {last.name}"

    def run(self) -> tuple[Any, BaseException | None]:
        """Do the work in this thread; return its value or error. From the return on nothing is raised in the thread."""
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = (self.work(), None)
        except BaseException as error:  # a call may raise SystemExit too
            outcome = (None, error)
        with self.guard:
            self.returned = True
        return outcome

    def end(self) -> bool:
        """Raise `_Ended` in the thread of a call that was given up, if it computes: it would slow down all others.

        One that waits takes nothing, and is left alone. Return True if there is nothing more to end.
        """
        if not hasattr(time, "pthread_getcpuclockid"):
            return True
        with self.guard:
            if self.returned or self.thread is None:
                return True
            if not self._busy(self.thread):
                return False
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(_Ended))
            return True

    def _busy(self, thread: int) -> bool:
        return time.clock_gettime(time.pthread_getcpuclockid(thread)) - self.computed >= BUSY_SECONDS


class Threads:
    """Runs blocking calls, at most `limit` at a time. A call that is given up loses its thread and its place.

    Threads are daemons: one that hangs keeps neither others nor the interpreter from ending. One that computes is ended
    by an exception, at its next line of Python.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit, self._name = limit, name
        self._changed = threading.Condition()  # guards everything below
        self._jobs: deque[Job] = deque()
        self._left: list[Job] = []  # given up while they ran: one that waits now may compute later
        self._looked = 0.0  # when they were looked at, of `time.monotonic`
        self._threads = self._idle = 0  # without those whose call was given up
        self._closed = False

    def submit(self, work: Callable[[], Any]) -> Job:
        """Begin a call as soon as there is a thread for it."""
        job = Job(work)
        with self._changed:
            if self._closed:
                raise RuntimeError("the threads have been closed")
            self._jobs.append(job)
            self._staff()
            if self._left and time.monotonic() >= self._looked + BUSY_SECONDS:
                self._end_left()
        return job

    def give_up(self, job: Job) -> None:
        """Wait for a call no longer; where it runs, another thread takes the place of its own."""
        with self._changed:
            if job.given_up or job.result.done():
                return
            job.given_up = True
            if job.thread is not None:
                self._threads -= 1
                self._staff()
                self._left.append(job)
                self._end_left()
            elif job in self._jobs:
                self._jobs.remove(job)

    def close(self) -> None:
        """Let threads end with what they do now."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify_all()

    def _end_left(self) -> None:
        """End calls that were given up and compute; the lock is held."""
        self._left = [job for job in self._left if not job.end()]
        self._looked = time.monotonic()

    def _staff(self) -> None:
        """Wake or start a thread for waiting calls; the lock is held."""
        if self._idle < len(self._jobs) and self._threads < self._limit:
            self._threads += 1
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        elif self._jobs:
            self._changed.notify()

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            try:
                outcome = job.run()
            except _Ended:
                return
            if job.given_up:  # nobody waits, and another thread has this one's place
                return
            with self._changed:
                if job.given_up:
                    return
                job.result.set_result(outcome)

    def _next(self) -> Job | None:
        """Return the next call, marked as running; None when this thread is to end."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs or self._closed, IDLE_SECONDS)
            self._idle -= 1
            if not self._jobs:
                self._threads -= 1
                return None
            job = self._jobs.popleft()
            job.computed = time.thread_time()
            job.started, job.thread = time.monotonic(), threading.get_ident()
            return job
