"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class LoopThread:
    """An event loop in a daemon thread, which begins with the first thing that is to be done in it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """True from the first thing to be done until `stop`."""
        return self._thread is not None and self._thread.is_alive()

    def soon(self, act: Callable[[], None]) -> None:
        """Have the loop call something; the caller sees to it that two threads do not begin it at once."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()
        self._loop.call_soon_threadsafe(act)

    def stop(self) -> None:
        """Ask the loop to end."""
        if self._loop is not None and self.is_alive:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self, seconds: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(seconds)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
