"""Run a coroutine to its end from synchronous code, also inside a notebook, whose thread has a running event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def run_blocking(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return what `work` returns. Where this thread has a running loop, another thread runs one of its own.

    An interrupt (Ctrl-C) cancels the work and is raised once it has ended.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: list[_Result] = []
    failure: list[BaseException] = []
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[_Result]]] = []

    async def tracked() -> _Result:
        task = asyncio.ensure_future(work)
        started.append((asyncio.get_running_loop(), task))
        return await task

    def run() -> None:
        try:
            outcome.append(asyncio.run(tracked()))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="whet-blocking")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        for loop, task in started:
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if failure:
        raise failure[0]
    return outcome[0]
