"""The Engine protocol on top of `generate`, for engines that sample one batch after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager

from whet.rollout.engine import Piece, Progress, SamplingParams, Start, Weights
from whet.rollout.spec import Capabilities
from whet.rollout.whole import stream_whole
from whet.types import Sample


class BatchEngine:
    """A subclass samples in `generate`, and holds `turn` while it uses the model; everything else follows from that."""

    capabilities = Capabilities(concurrent=False)

    def __init__(self) -> None:
        self.version = 0
        self.turn = threading.RLock()

    @property
    def failure(self) -> str | None:
        """None: there is nothing that could end by itself."""
        return None

    def generate(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """Return n samples for each start, in the order of the starts."""
        raise NotImplementedError

    async def sample(self, prompt: Start, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """Return n samples of one start, when those of earlier calls are finished; cancelled, it aborts them."""
        work = asyncio.ensure_future(asyncio.to_thread(self.generate, [prompt], params, [sample_id]))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self.abort(range(sample_id, sample_id + params.n))
            await asyncio.gather(work, return_exceptions=True)  # the thread uses the model until then
            raise

    def stream(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        parts: bool = True,
    ) -> AsyncIterator[Piece]:
        """Yield whole samples."""
        return stream_whole(self, prompts, params, sample_ids)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Keep any batch from being sampled inside the context; one that is being sampled is finished first."""
        with self.turn:
            yield

    def load_weights(self, weights: Weights, version: int) -> None:
        """Note the version: an engine that reads the learner's model has its weights already."""
        with self.turn:
            self.version = version

    def abort(self, sample_ids: Collection[int] | None = None) -> None:
        """Do nothing: a batch is finished once it was begun."""

    def release(self) -> None:
        """Nothing is held between calls."""

    def close(self) -> None:
        """Nothing was started."""
