"""Buffer of a stream between the engine and its client; it holds the whole response at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from whet.serving.writer import Added


class Outbox:
    """Filled at the engine's pace and emptied at the client's: what waits for one response becomes one event."""

    def __init__(self) -> None:
        self._waiting: dict[int, Added] = {}
        self._changed = asyncio.Event()
        self._ended = False
        self._failure: Exception | None = None

    def add(self, index: int, added: Added) -> None:
        """Put in what was added to one of the responses."""
        waiting = self._waiting.setdefault(index, Added())
        waiting += added
        self._changed.set()

    @property
    def is_filled(self) -> bool:
        """True if something waits to be taken."""
        return bool(self._waiting)

    def end(self, failure: Exception | None) -> None:
        """Nothing more comes, because all is written or because of a failure."""
        self._ended, self._failure = True, failure
        self._changed.set()

    async def taken(self) -> AsyncIterator[tuple[int, Added]]:
        """All that is put in, by response; then the failure, if there was one."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                index = next(iter(self._waiting))
                yield index, self._waiting.pop(index)
            if self._ended and not self._waiting:
                break
        if self._failure is not None:
            raise self._failure
