"""Calls of environments: async and blocking, within their time, whatever they do."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from whet.envs.host import EnvHost, OverrunError


@pytest.fixture
def host() -> Iterator[EnvHost]:
    made = EnvHost(threads=4)
    yield made
    made.close()


def test_blocking_and_async_calls_return_what_they_return(host: EnvHost) -> None:
    async def later(value: int) -> int:
        await asyncio.sleep(0)
        return value + 1

    async def both() -> list[Any]:
        return [
            await host.call(lambda value: value * 2, 3, seconds=5),
            await host.call(later, 3, seconds=5),
            await host.call(lambda: later(9), seconds=5),  # a plain function that returns a coroutine
        ]

    assert asyncio.run(both()) == [6, 4, 10]


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), SystemExit(3), StopIteration(), asyncio.CancelledError()],
    ids=lambda e: type(e).__name__,
)
def test_whatever_a_call_raises_reaches_the_caller_and_the_host_goes_on(host: EnvHost, error: BaseException) -> None:
    def blocking() -> None:
        raise error

    async def in_loop() -> None:
        raise error

    async def calls() -> tuple[BaseException, BaseException, int]:
        caught = []
        for function in (blocking, in_loop):
            try:
                await host.call(function, seconds=5)
            except BaseException as found:
                caught.append(found)
        return caught[0], caught[1], await host.call(lambda: 7, seconds=5)

    first, second, value = asyncio.run(calls())
    assert value == 7
    for found in (first, second):
        assert isinstance(found, type(error) | RuntimeError)


def test_calls_that_hang_are_given_up_and_leave_their_threads_to_others(host: EnvHost) -> None:
    released = threading.Event()

    async def calls() -> tuple[list[str], list[int], float]:
        async def hang() -> str:
            with pytest.raises(OverrunError) as error:
                await host.call(released.wait, 60, seconds=0.2)
            return str(error.value)

        where = await asyncio.gather(*(hang() for _ in range(8)))  # twice as many as there are threads
        began = time.perf_counter()
        values = await asyncio.gather(*(host.call(lambda i=i: i, seconds=5) for i in range(8)))
        return list(where), list(values), time.perf_counter() - began

    where, values, seconds = asyncio.run(calls())
    released.set()
    assert values == list(range(8))
    assert seconds < 5
    assert all("threading.py" in each for each in where)


def test_calls_that_compute_without_end_are_ended_and_give_their_locks_back(host: EnvHost) -> None:
    lock, ended = threading.Lock(), []

    def spin() -> None:
        try:
            with lock:  # as games share one that draw from the random numbers of the process
                while True:
                    pass
        finally:
            ended.append(threading.get_ident())

    async def overrun() -> None:
        with pytest.raises(OverrunError):
            await host.call(spin, seconds=0.6)

    async def calls() -> int:
        await asyncio.gather(overrun(), overrun())  # the second one begins to compute when it has been given up
        until = time.monotonic() + 30
        while len(ended) < 2 and time.monotonic() < until:
            await host.call(time.sleep, 0.05, seconds=5)
        return await host.call(lambda: 7, seconds=5)

    assert asyncio.run(calls()) == 7
    assert len(ended) == 2
    assert not lock.locked()


def test_time_spent_waiting_for_a_thread_does_not_count(host: EnvHost) -> None:
    async def calls() -> list[None]:
        return await asyncio.gather(*(host.call(time.sleep, 0.15, seconds=1.0) for _ in range(32)))  # 8 rounds: 1.2 s

    assert asyncio.run(calls()) == [None] * 32


def test_a_coroutine_that_ignores_its_cancellation_is_not_waited_for(host: EnvHost) -> None:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    async def call() -> float:
        began = time.perf_counter()
        with pytest.raises(OverrunError):
            await host.call(stubborn, seconds=0.1)
        return time.perf_counter() - began

    assert asyncio.run(call()) < 5


def test_an_event_loop_that_a_coroutine_blocks_is_replaced(host: EnvHost) -> None:
    released = threading.Event()

    async def blocks() -> None:
        released.wait(60)

    async def answers() -> int:
        return 5

    async def calls() -> tuple[str, int]:
        with pytest.raises(OverrunError) as error:
            await host.call(blocks, seconds=0.1)
        return str(error.value), await host.call(answers, seconds=5)

    said, value = asyncio.run(calls())
    released.set()
    assert "blocks the event loop" in said
    assert value == 5


def test_a_cancelled_caller_leaves_nothing_waiting(host: EnvHost) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(host.call(time.sleep, 30, seconds=60))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    began = time.perf_counter()
    asyncio.run(cancelled())
    assert time.perf_counter() - began < 5


def test_close_waits_for_environments_that_are_being_closed() -> None:
    host, closed = EnvHost(), []

    def close() -> None:
        time.sleep(0.2)
        closed.append(True)

    host.begin(close)
    host.close()
    assert closed == [True]


def test_thousands_of_async_calls_are_in_flight_at_once(host: EnvHost) -> None:
    async def slow() -> int:
        await asyncio.sleep(1.0)
        return 1

    async def calls() -> int:
        return sum(await asyncio.gather(*(host.call(slow, seconds=60) for _ in range(3000))))

    began = time.perf_counter()
    assert asyncio.run(calls()) == 3000
    assert time.perf_counter() - began < 30  # one after the other they would take 50 minutes
    assert "whet-env-loop" in {thread.name for thread in threading.enumerate()}
    assert sys.version_info >= (3, 11)
