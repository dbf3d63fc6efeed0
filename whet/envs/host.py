"""Calls of environments, each within its time: coroutines in an event loop of their own, blocking methods in threads.

Neither can hold up the event loop of the caller, in which the engine's requests live. A call that overruns is given up:
its coroutine is cancelled, its thread is left behind, and nobody waits for it. An event loop that a coroutine blocks is
replaced by another for the calls that follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from whet.envs.orphans import Orphans
from whet.envs.threads import Job, Threads

THREADS = 512  # blocking calls at a time
CLOSE_SECONDS = 5.0  # that `close` waits for environments that are being closed
_ANSWER_SECONDS = 1.0  # after which an event loop that does not answer counts as blocked


class OverrunError(Exception):
    """A call did not finish in time; the message says where it stood."""


@dataclass(slots=True, eq=False)
class _Running:
    """A call under way; its result is a pair (value, error)."""

    result: Future[Any]
    job: Job | None  # of a thread; None in the event loop
    loop: asyncio.AbstractEventLoop | None = None
    begun: float = 0.0  # in the event loop, of `time.monotonic`

    @property
    def started(self) -> float | None:
        return self.begun if self.job is None else self.job.started


class EnvHost:
    """Runs the methods of environments; used from any event loop or thread."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = Threads(threads, "whet-env")
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: set[Future[Any]] = set()  # results of `begin`
        self._orphans = Orphans()

    async def call(self, function: Callable[..., Any], *given: Any, seconds: float) -> Any:
        """Return what a method returns; `OverrunError` after so many seconds, not counting the wait for a thread."""
        value = await self._wait(self._start(function, given), seconds)
        if inspect.isawaitable(value):  # a callable that is no coroutine function and returns one's coroutine

            async def awaited() -> Any:
                return await value

            value = await self._wait(self._start(awaited, ()), seconds)
        return value

    def begin(self, function: Callable[..., Any]) -> None:
        """Begin a call that nobody waits for, but `close` for a while."""
        running = self._start(function, ())
        with self._lock:
            self._closing.add(running.result)
        running.result.add_done_callback(self._closed)

    def mark(self) -> None:
        """Have processes that are started from now on ended, should this one be killed; every call does it too."""
        self._orphans.begin()

    def close(self) -> None:
        """Wait a moment for calls of `begin`, then end the event loop; threads that hang are left behind."""
        end = time.monotonic() + CLOSE_SECONDS
        while self._closing and time.monotonic() < end:
            time.sleep(0.01)
        self._threads.close()
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(_end, loop)
        self._orphans.close()

    def _closed(self, result: Future[Any]) -> None:
        with self._lock:
            self._closing.discard(result)

    def _start(self, function: Callable[..., Any], given: tuple[Any, ...]) -> _Running:
        self._orphans.begin()
        if not is_async(function):
            job = self._threads.submit(lambda: function(*given))
            return _Running(job.result, job)
        loop = self._event_loop()
        result = asyncio.run_coroutine_threadsafe(_outcome(function, given), loop)
        return _Running(result, None, loop, time.monotonic())

    async def _wait(self, running: _Running, seconds: float) -> Any:
        waiting = asyncio.wrap_future(running.result)
        try:
            while not waiting.done():
                started = running.started
                left = seconds if started is None else started + seconds - time.monotonic()
                if left <= 0:
                    raise OverrunError(await self._give_up(running))
                await asyncio.wait([waiting], timeout=left)
        except asyncio.CancelledError:
            self._abandon(running)
            raise
        value, error = (None, asyncio.CancelledError()) if waiting.cancelled() else waiting.result()
        if isinstance(error, asyncio.CancelledError):  # the caller must not take it for its own cancellation
            raise RuntimeError("the call was cancelled by its own code") from error
        if error is not None:
            raise error
        return value

    def _abandon(self, running: _Running) -> None:
        if running.job is not None:
            self._threads.give_up(running.job)
        else:
            running.result.cancel()  # which cancels the coroutine, and waits for nothing

    async def _give_up(self, running: _Running) -> str:
        """Abandon a call that overran; return where it stood."""
        where = f"it stood at {running.job.where()}" if running.job is not None and running.job.where() else ""
        self._abandon(running)
        if running.loop is None or running.loop is not self._loop:
            return where
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        here = asyncio.get_running_loop()
        running.loop.call_soon_threadsafe(_tell, here, answered)
        await asyncio.wait([answered], timeout=_ANSWER_SECONDS)
        if answered.done():
            return where
        with self._lock:
            if self._loop is running.loop:
                self._loop = None  # its thread is left behind
        return "an async method blocks the event loop: use await, or a method that is not async"

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="whet-env-loop", daemon=True).start()
            return self._loop


def is_async(function: Callable[..., Any]) -> bool:
    """True if calling it makes a coroutine."""
    own = type(function).__call__  # of an object that is called like a function
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(own)


async def _outcome(function: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    try:
        return await function(*given), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # SystemExit would end the thread of the event loop
        return None, error


def _tell(loop: asyncio.AbstractEventLoop, answered: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # it was closed: nobody waits any more
        loop.call_soon_threadsafe(_answer, answered)


def _answer(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def _end(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.call_soon(loop.stop)
