"""Responses as they grow, for one reader that may be slower than the engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from collections.abc import Sequence as Seq

from whet.rollout.engine import Piece
from whet.rollout.engines.native.sequence import Request, Sequence


class Growth:
    """Wakes a reader in its event loop when the engine's thread has added tokens; many calls make one wake."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._event = loop, asyncio.Event()
        self._told = False

    def __call__(self) -> None:
        """Called by the engine's thread."""
        if not self._told:
            self._told = True
            with contextlib.suppress(RuntimeError):  # the reader's loop has closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._event.set)

    async def pieces(self, requests: Seq[Request]) -> AsyncIterator[Piece]:
        """Yield additions to the sequences of requests, until all have ended."""
        open_ = {sequence: place for place, request in enumerate(requests) for sequence in request.sequences}
        read = dict.fromkeys(open_, 0)
        while open_:
            await self._event.wait()
            self._event.clear()
            self._told = False  # before looking: what is added from now on makes another wake
            for request in requests:
                request.raise_error()
            for sequence, place in list(open_.items()):
                piece = _piece(sequence, place, read[sequence])
                if piece.finish is not None:
                    del open_[sequence]
                if piece.ids or piece.finish is not None:
                    read[sequence] += len(piece.ids)
                    yield piece


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
