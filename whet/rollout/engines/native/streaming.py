"""Responses as they grow, for readers that may be slower than the engine."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from collections.abc import Sequence as Seq
from typing import Any, Protocol

from whet.rollout.engine import Piece, SamplingParams, Start
from whet.rollout.engines.native.inbox import Inbox
from whet.rollout.engines.native.sequence import Request, Sequence


class Home(Protocol):
    """An event loop, or whatever else takes calls from other threads and makes them one after the other."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object:
        """Have a function called; RuntimeError once nobody takes calls any more."""
        ...


class Reader(ABC):
    """A reader of requests: told once that they have grown, and again after it has looked."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.told = False  # between a message that is on its way and the reader's look
        self.requests: Seq[Request] = ()
        self._open: dict[Sequence, tuple[int, int]] = {}  # place of the request, tokens read

    def __call__(self) -> None:
        """Called by a thread that has added tokens."""
        wake([self])

    def ask(
        self, engine: Inbox, prompts: Iterable[Start], params: SamplingParams, sample_ids: Iterable[int]
    ) -> list[Request]:
        """Have an engine write n samples of each prompt, and read them."""
        requests = [
            engine.request(prompt, params, sample_id, reader=self)
            for prompt, sample_id in zip(prompts, sample_ids, strict=True)
        ]
        self.follow(requests)
        engine.begin(requests)
        return requests

    def follow(self, requests: Seq[Request]) -> None:
        """Read these requests; called before the engine has them."""
        self.requests = requests
        self._open = {sequence: (place, 0) for place, request in enumerate(requests) for sequence in request.sequences}

    @abstractmethod
    def look(self) -> None:
        """Take note, at home, that there may be `additions`."""

    @property
    def ended(self) -> bool:
        """True when the last addition was read."""
        return not self._open

    def additions(self, parts: bool = True) -> list[Piece]:
        """Take all that was added since the last time; without `parts`, responses that have ended."""
        self.told = False  # before looking: what is added from now on makes another message
        for request in self.requests:
            request.raise_error()
        found = []
        for sequence, (place, start) in list(self._open.items()):
            finish = sequence.finish  # before its tokens, which the engine's thread adds in the order below
            if finish is None and not parts:
                continue
            end = len(sequence.log_probs)
            if finish is not None:
                del self._open[sequence]
            elif end > start:
                self._open[sequence] = place, end
            else:
                continue
            grown = (sequence.ids[start:end], sequence.log_probs[start:end], sequence.tops[start:end])
            found.append(Piece(place, sequence.index, *grown, finish))
        return found


class Growth(Reader):
    """Wakes a reader in its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._event = asyncio.Event()

    def look(self) -> None:
        """Called in the reader's event loop."""
        self._event.set()

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield additions until all responses have ended."""
        while not self.ended:
            await self._event.wait()
            self._event.clear()
            for piece in self.additions():
                yield piece


def wake(readers: Iterable[Reader]) -> None:
    """Called by the engine's thread once a step: one message to each home, whatever the number of readers.

    Every message is a system call, at which another thread may take the interpreter's lock and keep it for a while.
    """
    homes: dict[Home, list[Reader]] = {}
    for reader in readers:
        if not reader.told:
            reader.told = True
            homes.setdefault(reader.home, []).append(reader)
    for home, woken in homes.items():
        with contextlib.suppress(RuntimeError):  # the readers' loop has closed: nobody waits any more
            home.call_soon_threadsafe(_wake_all, woken)


def _wake_all(readers: list[Reader]) -> None:
    for reader in readers:
        reader.look()
