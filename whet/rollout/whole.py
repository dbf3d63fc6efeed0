"""Parts of the Engine protocol for engines that know whole samples only: streaming, pausing, and what they refuse."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from whet.errors import UserError
from whet.rollout.engine import Engine, Piece, SamplingParams, Start, ids_of
from whet.types import Prompt, Sample

_LOOK = 0.01  # seconds between two looks of a coroutine at a paused engine


class Gate:
    """Lets calls in, and keeps them out while somebody pauses, who waits until all inside have left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = self._pauses = 0

    @property
    def idle(self) -> bool:
        """True if nobody is inside."""
        return self._inside == 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Be inside; waits while the engine is paused."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pauses)
            self._inside += 1
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def enter_async(self) -> AsyncIterator[None]:
        """Do the same in an event loop, which goes on while this waits."""
        while not self._try():
            await asyncio.sleep(_LOOK)
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Keep everybody out; inside the context those who were inside have left."""
        with self._changed:
            self._pauses += 1
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._inside)
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                self._changed.notify_all()

    def _try(self) -> bool:
        with self._changed:
            if self._pauses:
                return False
            self._inside += 1
            return True

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()


async def stream_whole(
    engine: Engine, prompts: Sequence[Start], params: SamplingParams, sample_ids: Sequence[int] | None
) -> AsyncIterator[Piece]:
    """Yield each sample in one piece, once all of its start are finished; should one fail, nobody waits for others."""
    ids = ids_of(prompts, params, sample_ids)
    tasks = [asyncio.create_task(engine.sample(prompt, params, id_)) for prompt, id_ in zip(prompts, ids, strict=True)]
    try:
        for place, samples in enumerate(await asyncio.gather(*tasks)):
            for index, sample in enumerate(samples):
                before = 0 if isinstance(prompts[place], Prompt) else len(prompts[place].ids)
                yield piece_of(sample, place, index, before)
    finally:
        for task in tasks:
            task.cancel()


def piece_of(sample: Sample, place: int, index: int, before: int) -> Piece:
    """Return the tokens of a sample behind its first `before` ones as one piece."""
    return Piece(place, index, sample.ids[before:], sample.log_probs[before:], [], sample.finish)


def refuse_params(params: SamplingParams, engine: str, stop_ids: bool = False) -> None:
    """Raise a `UserError` for parameters that an engine would not follow; `stop_ids` says that it follows those."""
    if params.top_logprobs:
        raise UserError(f"top_logprobs: the engine {engine} reports the tokens that it wrote and no others; ask for 0")
    if params.stop_ids and not stop_ids:
        raise UserError(f"stop_token_ids: the engine {engine} ends at the model's own end tokens; use stop")
