"""Batches of prompts for an engine that samples one call of `generate` after the other.

Each call samples all prompts that wait by then: at first those that began in one turn of the event loop, which is a
whole batch of synchronous training, in its order.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from whet.rollout.engine import Engine, SamplingParams
from whet.types import Prompt, Sample


@dataclass(frozen=True, slots=True)
class _Ask:
    """A prompt that waits for the next batch."""

    prompt: Prompt
    ids: range
    samples: asyncio.Future[list[Sample]]


class Batches:
    """Samples the prompts that wait, batch by batch."""

    def __init__(self, engine: Engine, params: SamplingParams) -> None:
        self._engine, self._params = engine, params
        self._waiting: list[_Ask] = []
        self._task: asyncio.Task[None] | None = None

    async def sample(self, prompt: Prompt, ids: range) -> list[Sample]:
        """Return the samples of these ids, as many as `params.n`."""
        loop = asyncio.get_running_loop()
        ask = _Ask(prompt, ids, loop.create_future())
        self._waiting.append(ask)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._sample_batches())
        try:
            return await ask.samples
        except asyncio.CancelledError:
            if ask in self._waiting:
                self._waiting.remove(ask)
            elif not self._task.done():  # the model is in use until then
                self._engine.abort(ids)
                await asyncio.wait([self._task])
            raise

    async def _sample_batches(self) -> None:
        while asks := [ask for ask in self._waiting if not ask.samples.done()]:
            self._waiting = []
            try:
                samples = await in_thread(lambda asks=asks: self._generate(asks))  # type: ignore[misc]
            except Exception as error:
                for ask in asks:
                    if not ask.samples.done():  # one whose caller was cancelled
                        ask.samples.set_exception(error)
                continue
            for place, ask in enumerate(asks):
                if not ask.samples.done():
                    ask.samples.set_result(samples[place * self._params.n : (place + 1) * self._params.n])

    def _generate(self, asks: list[_Ask]) -> list[Sample]:
        return self._engine.generate([ask.prompt for ask in asks], self._params, [ask.ids.start for ask in asks])


async def in_thread(work: Callable[[], list[Sample]]) -> list[Sample]:
    """Run blocking work in a daemon thread, which cannot keep the interpreter from ending as those of a pool do."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[list[Sample]] = loop.create_future()

    def give(result: list[Sample] | BaseException) -> None:
        if isinstance(result, BaseException):
            ended.set_exception(result if isinstance(result, Exception) else RuntimeError(repr(result)))
        else:
            ended.set_result(result)

    def run() -> None:
        result: list[Sample] | BaseException
        try:
            result = work()
        except BaseException as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(give, result)

    threading.Thread(target=run, name="whet-sampling", daemon=True).start()
    return await ended
