"""Sample groups of single-turn responses with any engine: the rollout that a collector runs without an environment."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from whet.rollout.engine import Engine, SamplingParams, Start
from whet.types import Prompt, Sample

Finish = Callable[[list[Sample]], None]  # adds what is known of finished samples, such as their text


@dataclass(frozen=True, slots=True)
class _Ask:
    """A prompt that waits for an engine that samples one batch after the other."""

    prompt: Prompt
    ids: range
    samples: asyncio.Future[list[Sample]]


class SingleTurn:
    """Samples the n responses to a prompt.

    Engines that decode calls together are asked for each prompt. Of the others, each call of `generate` samples all
    prompts that wait by then: at first those that began in one turn of the event loop, which is a whole batch of
    synchronous training, in its order.

    Samples that somebody aborts while the group is wanted are continued where they stand, with the weights of then.
    """

    def __init__(self, engine: Engine, params: SamplingParams, finish: Finish) -> None:
        self._engine, self._params, self._finish = engine, params, finish
        self._waiting: list[_Ask] = []
        self._batches: asyncio.Task[None] | None = None

    async def __call__(self, prompt: Prompt, ids: range) -> list[Sample]:
        """Return the samples of these ids, as many as `params.n`."""
        if self._engine.capabilities.concurrent:
            samples = await self._engine.sample(prompt, self._params, ids.start)
            samples = list(await asyncio.gather(*map(self._continued, samples, ids)))
        else:
            samples = await self._ask(prompt, ids)
        self._finish(samples)
        return samples

    async def _continued(self, sample: Sample, sample_id: int) -> Sample:
        """Return a sample as it is if it was finished, else what becomes of it."""
        if sample.finish != "abort":
            return sample
        params = replace(self._params, n=1, max_tokens=self._params.max_tokens - len(sample.ids))
        whole = await sample_whole(self._engine, sample if sample.ids else sample.prompt, params, sample_id)
        return replace(whole, index=sample.index)

    async def _ask(self, prompt: Prompt, ids: range) -> list[Sample]:
        loop = asyncio.get_running_loop()
        ask = _Ask(prompt, ids, loop.create_future())
        self._waiting.append(ask)
        if self._batches is None or self._batches.done():
            self._batches = loop.create_task(self._sample_batches())
        try:
            return await ask.samples
        except asyncio.CancelledError:
            if ask in self._waiting:
                self._waiting.remove(ask)
            elif not self._batches.done():  # the model is in use until then
                self._engine.abort(ids)
                await asyncio.wait([self._batches])
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


async def sample_whole(engine: Engine, start: Start, params: SamplingParams, sample_id: int) -> Sample:
    """Sample one response; whenever it is aborted it goes on where it stands, with the weights of then."""
    before = 0 if isinstance(start, Prompt) else len(start.ids)
    (sample,) = await engine.sample(start, params, sample_id)
    while sample.finish == "abort":
        left = replace(params, max_tokens=params.max_tokens - (len(sample.ids) - before))
        (sample,) = await engine.sample(sample if sample.ids else start, left, sample_id)
    return sample


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
