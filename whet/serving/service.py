"""The model that is served, and everything that answers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from whet import __version__
from whet.config import Config
from whet.rollout.engine import Engine, Piece, SamplingParams
from whet.rollout.engines.native import NativeEngine
from whet.rollout.engines.vllm import OwnServerEngine, VLLMEngine
from whet.serving.errors import ApiError
from whet.serving.gate import Gate
from whet.serving.metrics import Metrics
from whet.serving.prompts import PromptMaker
from whet.serving.text import Vocabulary
from whet.types import Prompt, Sample

_READERS = 2  # threads that make prompts of requests


@dataclass
class Service:
    """Made once, before the first request."""

    config: Config
    name: str
    path: Path | str
    model: PreTrainedModel
    engine: Engine
    maker: PromptMaker
    vocabulary: Vocabulary
    gate: Gate
    metrics: Metrics
    token: str
    slots: int  # samples that the engine decodes at once
    sees: bool  # whether requests may hold images
    started: int = 0  # when, as the API has it
    readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_READERS, "whet-prompts"))
    updating: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def version(self) -> int:
        """Of the weights that write answers now."""
        return self.engine.version

    @property
    def fingerprint(self) -> str:
        """What wrote an answer, in one word."""
        return f"whet-{__version__}-v{self.version}"

    @property
    def failure(self) -> str | None:
        """How the engine ended, where it has by itself: nothing can be answered any more."""
        return self.engine.failure if isinstance(self.engine, VLLMEngine | OwnServerEngine) else None

    async def pieces(self, prompts: list[Prompt], params: SamplingParams, streamed: bool) -> AsyncIterator[Piece]:
        """The responses as they come. Many prompts come in turns, so that nobody else waits for all of them.

        Engines that have to send every token from another process do so for answers that are `streamed` only.
        """
        engine = self.engine
        refuse_what_it_cannot(engine, params)
        per_turn = max(1, self.slots // params.n)
        for first in range(0, len(prompts), per_turn):
            some = prompts[first : first + per_turn]
            ids = [(first + place) * params.n for place in range(len(some))]
            if isinstance(engine, NativeEngine) or (streamed and isinstance(engine, VLLMEngine)):
                async for piece in engine.stream(some, params, ids):
                    yield replace(piece, prompt=piece.prompt + first)
            else:
                asked = [engine.sample(prompt, params, id_) for prompt, id_ in zip(some, ids)]
                for place, samples in enumerate(await _together(asked), first):
                    for sample in samples:
                        yield _whole(sample, place)

    def close(self) -> None:
        """End what was started."""
        self.readers.shutdown(wait=False, cancel_futures=True)
        self.engine.close()


def refuse_what_it_cannot(engine: Engine, params: SamplingParams) -> None:
    """400 for parameters that the engine is not given."""
    if params.top_logprobs and not isinstance(engine, NativeEngine):
        raise ApiError(400, "top_logprobs: worker.rollout.name=vllm reports the tokens it wrote; ask for 0")
    if params.stop_ids and not isinstance(engine, NativeEngine | VLLMEngine):
        raise ApiError(400, "stop_token_ids: worker.rollout.mode=server ends at the model's own end tokens; use stop")


async def _together(asked: list[Coroutine[Any, Any, list[Sample]]]) -> list[list[Sample]]:
    """What all of them give; should one fail, nobody waits for the others."""
    tasks = [asyncio.create_task(each) for each in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _whole(sample: Sample, place: int) -> Piece:
    return Piece(place, sample.index, sample.ids, sample.log_probs, [], sample.finish)
