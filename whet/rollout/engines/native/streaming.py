"""Responses as they grow, for one reader that may be slower than the engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from collections.abc import Sequence as Seq

from whet.rollout.engine import Piece
from whet.rollout.engines.native.sequence import Request, Sequence


class Growth:
    """Wakes a reader in its event loop when the engine's thread has added tokens."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._event = loop, asyncio.Event()
        self.told = False  # between a wake that is on its way and the reader that takes it

    def __call__(self) -> None:
        """Called by a thread that has added tokens."""
        wake([self])

    def look(self) -> None:
        """Called in the reader's event loop."""
        self._event.set()

    async def pieces(self, requests: Seq[Request]) -> AsyncIterator[Piece]:
        """Yield additions to the sequences of requests, until all have ended."""
        open_ = {sequence: place for place, request in enumerate(requests) for sequence in request.sequences}
        read = dict.fromkeys(open_, 0)
        while open_:
            await self._event.wait()
            self._event.clear()
            self.told = False  # before looking: what is added from now on makes another wake
            for request in requests:
                request.raise_error()
            for sequence, place in list(open_.items()):
                piece = _piece(sequence, place, read[sequence])
                if piece.finish is not None:
                    del open_[sequence]
                if piece.ids or piece.finish is not None:
                    read[sequence] += len(piece.ids)
                    yield piece


def wake(readers: Iterable[Growth]) -> None:
    """Called by the engine's thread once a step: one message to each event loop, whatever the number of readers.

    Every message is a system call, at which another thread may take the interpreter's lock and keep it for a while.
    """
    loops: dict[asyncio.AbstractEventLoop, list[Growth]] = {}
    for reader in readers:
        if not reader.told:
            reader.told = True
            loops.setdefault(reader.loop, []).append(reader)
    for loop, woken in loops.items():
        with contextlib.suppress(RuntimeError):  # the readers' loop has closed: nobody waits any more
            loop.call_soon_threadsafe(_wake_all, woken)


def _wake_all(readers: list[Growth]) -> None:
    for reader in readers:
        reader.look()


def _piece(sequence: Sequence, place: int, start: int) -> Piece:
    finish = sequence.finish  # before its tokens, which the engine's thread adds in the order below
    end = len(sequence.log_probs)
    return Piece(
        place,
        sequence.index,
        sequence.ids[start:end],
        sequence.log_probs[start:end],
        sequence.tops[start:end],
        finish,
    )
