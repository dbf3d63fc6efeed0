"""Questions to a judge, each asked once: answers are kept on disk under what was asked."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

Message = dict[str, str]
Ask = Callable[[list[Message], str], Awaitable[str]]  # messages and their key; the judge's text


class AskError(Exception):
    """The judge gave no answer to one question."""

    def __init__(self, failure: str, cause: str, detail: str, settings: bool = False) -> None:
        """`settings` is True for what other questions would meet too: an address, a key, a name that is wrong."""
        super().__init__(detail)
        self.failure, self.cause, self.detail, self.settings = failure, cause, detail, settings


class Store(Protocol):
    """Texts by key, on disk."""

    def __contains__(self, key: str) -> bool: ...

    def __getitem__(self, key: str) -> Any: ...

    def add(self, key: str, record: Any) -> None:
        """Write a record; a key that is there keeps its first."""
        ...

    def close(self) -> None:
        """Let another process have it."""
        ...


class Asking:
    """Asks through a store; the same question asked twice at a time is one question. Used within one event loop."""

    def __init__(self, ask: Ask, store: Store, about: dict[str, Any], concurrency: int) -> None:
        """`about` is what an answer depends on besides the messages: the judge and how it samples."""
        self._ask, self._store, self._about = ask, store, about
        self._slots = asyncio.Semaphore(concurrency)
        self._flying: dict[str, asyncio.Task[str]] = {}
        self.asked = 0  # questions that were not in the store

    async def __call__(self, messages: list[Message]) -> str:
        """Return the judge's text, or raise AskError."""
        content = json.dumps([self._about, messages], sort_keys=True, ensure_ascii=True, default=str)
        key = hashlib.sha256(content.encode()).hexdigest()
        if key in self._store:
            return str(self._store[key])
        if key not in self._flying:
            task = asyncio.get_running_loop().create_task(self._new(messages, key))
            self._flying[key] = task
            task.add_done_callback(lambda done: self._landed(key, done))
        # A caller that is cancelled leaves the question to whoever else waits for it.
        return await asyncio.shield(self._flying[key])

    def close(self) -> None:
        """Give the store back."""
        self._store.close()

    async def _new(self, messages: list[Message], key: str) -> str:
        async with self._slots:
            text = await self._ask(messages, key)
        self.asked += 1
        self._store.add(key, text)
        return text

    def _landed(self, key: str, task: asyncio.Task[str]) -> None:
        del self._flying[key]
        if not task.cancelled():
            task.exception()  # was raised to those who waited, if anybody did
