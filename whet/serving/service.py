"""The model that is served, and everything that answers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from whet import __version__
from whet.chat.calls.format import Format
from whet.config import Config
from whet.rollout.engine import Piece, SamplingParams
from whet.serving.backend import Backend
from whet.serving.budget import Budget
from whet.serving.gate import Gate
from whet.serving.metrics import Metrics
from whet.serving.prompts import PromptMaker
from whet.serving.text import Vocabulary
from whet.types import Prompt

A = TypeVar("A")
T = TypeVar("T")
_READERS = 2  # threads that make prompts of requests
_SMALL = 4096  # bytes of a body up to which it is read in less time than handing it to another thread takes
LARGE = 65536  # bytes of a body from which on it waits for others of its kind, and not for it those that are small
_HELD = 2  # requests with all the pixels they may have that fit into memory together


@dataclass
class Service:
    """Made once, before the first request."""

    config: Config
    name: str
    path: Path | str
    backend: Backend
    maker: PromptMaker
    vocabulary: Vocabulary
    gate: Gate
    metrics: Metrics
    token: str
    slots: int  # samples that the engine decodes at once
    format: Format  # of calls of tools
    sees: bool  # whether requests may hold images
    started: int = 0  # when, as the API has it
    readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_READERS, "whet-prompts"))
    large_reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "whet-large"))
    marked: frozenset[int] = field(init=False)  # tokens left out of responses in which calls are looked for
    pixels: Budget = field(init=False)  # of the images of all requests
    updating: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.marked = self.vocabulary.hidden_but((*self.format.tokens, *self.format.thought))
        self.pixels = Budget(_HELD * self.config.serve.max_pixels)

    async def read(self, size: int, work: Callable[[A], T], given: A) -> T:
        """Do work on so many bytes, in another thread unless they are few: small requests never wait for large ones."""
        if size <= _SMALL:
            return work(given)
        threads = self.readers if size < LARGE else self.large_reader
        return await asyncio.get_running_loop().run_in_executor(threads, work, given)

    @property
    def version(self) -> int:
        """Version of the current weights."""
        return self.backend.version

    @property
    def fingerprint(self) -> str:
        """Fingerprint of model, weights and version."""
        return f"whet-{__version__}-v{self.version}"

    @property
    def failure(self) -> str | None:
        """Return how the engine ended, if it did by itself; no request can be served then."""
        return self.backend.failure

    async def pieces(
        self, prompts: list[Prompt], params: SamplingParams, streamed: bool
    ) -> AsyncGenerator[Piece, None]:
        """The responses as they come. Many prompts come in turns, so that nobody else waits for all of them.

        Engines that have to send every token from another process do so for answers that are `streamed` only.
        """
        per_turn = max(1, self.slots // params.n)
        for first in range(0, len(prompts), per_turn):
            some = prompts[first : first + per_turn]
            ids = [(first + place) * params.n for place in range(len(some))]
            async for piece in self.backend.stream(some, params, ids, streamed):
                yield replace(piece, prompt=piece.prompt + first)

    def close(self) -> None:
        """End what was started."""
        for threads in (self.readers, self.large_reader):
            threads.shutdown(wait=False, cancel_futures=True)
        self.backend.close()
