"""One TCP connection: bounds on its number and on how long it may be silent, half-sent or unread.

uvicorn has a timeout for kept-alive connections that send nothing. This protocol adds the others: a request's head must
be complete in time, an answer must be read in time, and when there are too many connections the one that has gone
longest without an authorized request is closed, so that a new client always gets in.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from whet.serving.errors import ApiError

AUTHORIZED = "whet_authorized"  # in the state of a request whose token was right
_SAID = ApiError(400, "this is not HTTP/1.1, or its head is too long", "invalid_http").answer.model_dump_json().encode()
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
_BAD_REQUEST += b"content-length: %d\r\n\r\n%b" % (len(_SAID), _SAID)
_MOMENT = 0.1  # seconds in which a client that has something to ask for shows its token
_WINDOW = 65536  # bytes; more than this read by the client counts as progress


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for every connection, in seconds but for the first."""

    connections: int
    burst: int  # connections beyond that for a moment
    header_timeout: float  # from the first byte of a request (or the connection) to the end of its head
    idle_timeout: float  # between an answer and the next request
    write_timeout: float  # in which a client must read half of what waits for it, or 64 KiB


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 with deadlines."""

    limits: Limits  # of a subclass, see `limited_connection`

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._since = self.loop.time()  # of the last authorized request, or of the connection
        self._deadline: float | None = self._since + self.limits.header_timeout  # None while a request is answered
        self._head_begun = True  # a new connection has as long as a head
        self._unread, self._unread_since, self._resumed = 0, self._since, False
        self._timer: asyncio.TimerHandle | None = None
        shortest = min(self.limits.header_timeout, self.limits.idle_timeout, self.limits.write_timeout)
        self._interval = min(1.0, shortest / 4)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection in, at the cost of another one where there are too many."""
        super().connection_made(transport)
        self._look()
        if len(self.connections) > self.limits.connections + self.limits.burst:
            self._make_room()
        elif len(self.connections) > self.limits.connections:
            self.loop.call_later(_MOMENT, self._make_room)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking at the clock."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def is_authorized(self) -> bool:
        """True while a request with the right token is being answered."""
        return self._is_answering and bool(self.scope["state"].get(AUTHORIZED))

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        """Close the connection that has gone longest without an authorized request, if there are too many."""
        if len(self.connections) > self.limits.connections:
            others = [each for each in self.connections if isinstance(each, Connection) and not each.is_authorized]
            min(others, key=lambda each: each._since, default=self).drop()

    def drop(self) -> None:
        """Close now, with what was not read thrown away."""
        self.connections.discard(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read, and set the deadline that follows from it."""
        super().data_received(data)
        if self._is_answering:
            self._deadline = None
        elif not self._head_begun:
            # Once for each request: a head that comes byte by byte gets no more time by it.
            self._head_begun = True
            self._deadline = self.loop.time() + self.limits.header_timeout

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is here already."""
        if self.scope["state"].get(AUTHORIZED):
            self._since = self.loop.time()
        super().on_response_complete()
        if self._is_answering:
            self._deadline = None
        else:
            self._head_begun = False
            self._deadline = self.loop.time() + self.limits.idle_timeout

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, and close; where an answer has begun already, close."""
        if self._is_answering:
            # The application must not write into this connection any more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            # Not by way of h11, which has rules for answers (to HEAD, say) that are of no use any more.
            self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def resume_writing(self) -> None:
        """Note that the client has read most of what waited for it."""
        self._resumed = True
        super().resume_writing()

    def _look(self) -> None:
        now = self.loop.time()
        late = self._deadline is not None and now >= self._deadline
        if late or self._is_stalled(now):
            self.drop()
        else:
            self._timer = self.loop.call_later(self._interval, self._look)

    def _is_stalled(self, now: float) -> bool:
        """True if the client has read too little since the last progress. Closing connections are looked at too."""
        unread = self.transport.get_write_buffer_size()
        progress = self._resumed or unread <= self._unread // 2 or self._unread - unread >= _WINDOW
        if progress or not self._unread:
            self._unread, self._unread_since, self._resumed = unread, now, False
        return now - self._unread_since >= self.limits.write_timeout


def limited_connection(limits: Limits) -> type[Connection]:
    """Return the protocol class with these limits, for uvicorn's option `http`."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
