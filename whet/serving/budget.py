"""A number that requests share: each holds a part of it while it is in memory, and waits until there is enough."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """First come, first served. Everything here happens in the event loop's thread."""

    def __init__(self, most: int) -> None:
        self.free = self._most = most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, amount: int) -> AsyncIterator[None]:
        """Hold an amount, or all there is if it is more than that."""
        amount = min(amount, self._most)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, granted))
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self.free += amount
            else:
                granted.cancel()
            self._grant()

    def _grant(self) -> None:
        while self._waiting:
            amount, granted = self._waiting[0]
            if not granted.cancelled() and amount > self.free:
                return
            self._waiting.popleft()
            if not granted.done():
                self.free -= amount
                granted.set_result(None)
