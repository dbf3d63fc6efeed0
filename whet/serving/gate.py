"""Admission of requests: a bound on running ones, a bound on the queue, none while weights change.

Everything here happens in the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from whet.serving.errors import ApiError, come_back


class Ticket:
    """One request's right to be here."""

    def __init__(self) -> None:
        self.cut = asyncio.Event()  # set when it must end early
        self.why: ApiError | None = None

    def end(self, why: ApiError) -> None:
        """Have the request end now, with this answer."""
        self.why = self.why or why
        self.cut.set()


class Gate:
    """First come, first served."""

    def __init__(self, concurrent: int, queued: int) -> None:
        self.concurrent, self.queued = concurrent, queued
        self.ending = False
        self._tickets: set[Ticket] = set()
        self._running: set[Ticket] = set()
        self._written: set[Ticket] = set()  # had their turn, and are being sent
        self._waiting: deque[tuple[Ticket, asyncio.Future[None]]] = deque()
        self._paused = False
        self._empty: asyncio.Future[None] | None = None

    @property
    def running(self) -> int:
        """Requests that are being answered."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that have arrived and are not being answered yet."""
        return len(self._tickets) - len(self._running) - len(self._written)

    @contextmanager
    def ticket(self) -> Iterator[Ticket]:
        """A place in the queue, taken before a request's body is read; 429 where there is none."""
        if self.ending:
            raise come_back(503, "the server is shutting down", "shutting_down", 5)
        if len(self._tickets) >= self.concurrent + self.queued:
            raise come_back(
                429, f"{self.running} requests are being answered and {self.waiting} wait; try again", "queue_full", 1
            )
        ticket = Ticket()
        self._tickets.add(ticket)
        try:
            yield ticket
        finally:
            self._tickets.discard(ticket)
            self._written.discard(ticket)

    @asynccontextmanager
    async def turn(self, ticket: Ticket) -> AsyncIterator[None]:
        """Wait until it is a request's turn, and hold one of the places inside."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((ticket, turn))
        self._admit()
        try:
            await turn
            yield
        finally:
            if ticket in self._running:
                self._running.discard(ticket)
                self._written.add(ticket)
            else:
                self._waiting = deque(each for each in self._waiting if each[0] is not ticket)
            self._admit()

    @asynccontextmanager
    async def alone(self, cut: ApiError | None = None) -> AsyncIterator[None]:
        """Inside, nobody is being answered: those who are finish first, or are `cut`; those who come wait."""
        self._paused = True
        try:
            if cut is not None:
                self._end(self._running, cut)
            if self._running:
                self._empty = asyncio.get_running_loop().create_future()
                await self._empty
            yield
        finally:
            self._paused, self._empty = False, None
            self._admit()

    def end_all(self, why: ApiError) -> None:
        """Cut everybody, those who wait included."""
        self._end(self._tickets, why)

    def _end(self, tickets: set[Ticket], why: ApiError) -> None:
        for ticket in list(tickets):
            ticket.end(why)

    def _admit(self) -> None:
        while self._waiting and not self._paused and len(self._running) < self.concurrent:
            ticket, turn = self._waiting.popleft()
            if not turn.done():  # it is when the request was cancelled
                self._running.add(ticket)
                turn.set_result(None)
        if self._empty is not None and not self._running and not self._empty.done():
            self._empty.set_result(None)
