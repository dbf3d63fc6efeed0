"""Sample groups of single-turn responses with any engine: the rollout that a collector runs without an environment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from whet.rollout.engine import Engine, SamplingParams, Start
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.rollout.batches import Batches

Finish = Callable[[list[Sample]], None]  # adds what is known of finished samples, such as their text


class SingleTurn:
    """Samples the n responses to a prompt.

    Engines that decode calls together are asked for each prompt, the others for batches (`batches.py`).

    Samples that somebody aborts while the group is wanted are continued where they stand, with the weights of then.
    """

    def __init__(self, engine: Engine, params: SamplingParams, finish: Finish) -> None:
        self._engine, self._params, self._finish = engine, params, finish
        self._batches: Batches | None = None

    async def __call__(self, prompt: Prompt, ids: range) -> list[Sample]:
        """Return the samples of these ids, as many as `params.n`."""
        if self._engine.capabilities.concurrent:
            samples = await self._engine.sample(prompt, self._params, ids.start)
            samples = list(await asyncio.gather(*map(self._continued, samples, ids)))
        else:
            samples = await self._in_batch(prompt, ids)
        self._finish(samples)
        return samples

    async def _continued(self, sample: Sample, sample_id: int) -> Sample:
        """Return a sample as it is if it was finished, else what becomes of it."""
        if sample.finish != "abort":
            return sample
        params = replace(self._params, n=1, max_tokens=self._params.max_tokens - len(sample.ids))
        whole = await sample_whole(self._engine, sample if sample.ids else sample.prompt, params, sample_id)
        return replace(whole, index=sample.index)

    async def _in_batch(self, prompt: Prompt, ids: range) -> list[Sample]:
        if self._batches is None:
            from whet.rollout.batches import Batches  # the native engine decodes calls together

            self._batches = Batches(self._engine, self._params)
        return await self._batches.sample(prompt, ids)


async def sample_whole(engine: Engine, start: Start, params: SamplingParams, sample_id: int) -> Sample:
    """Sample one response; whenever it is aborted it goes on where it stands, with the weights of then."""
    before = 0 if isinstance(start, Prompt) else len(start.ids)
    (sample,) = await engine.sample(start, params, sample_id)
    while sample.finish == "abort":
        left = replace(params, max_tokens=params.max_tokens - (len(sample.ids) - before))
        (sample,) = await engine.sample(sample if sample.ids else start, left, sample_id)
    return sample
