"""Early end of a request: its client disconnects, its time is up, or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from whet.serving.errors import ApiError, come_back
from whet.serving.gate import Ticket

T = TypeVar("T")
DRAIN_SECONDS = 2.0


class ClientGoneError(Exception):
    """Nobody is there to be answered."""


async def guarded(work: Coroutine[Any, Any, T], receive: Receive, ticket: Ticket, deadline: float) -> T:
    """Do the work unless something ends it; it was left in good order by the time this returns or raises."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    gone, cut = loop.create_task(_gone(receive)), loop.create_task(ticket.cut.wait())
    try:
        wait = max(0.0, deadline - loop.time())
        await asyncio.wait({task, gone, cut}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientGoneError
        if cut.done() and ticket.why is not None:
            raise ticket.why
        raise ApiError(504, "the request took longer than serve.request_timeout allows", "timeout")
    finally:
        for each in (task, gone, cut):
            each.cancel()
        await asyncio.gather(task, gone, cut, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(receive: Receive, headers: dict[bytes, bytes], most: int, seconds: float) -> bytes:
    """The body of a request, no longer than `most` bytes and no slower than `seconds`."""
    declared = headers.get(b"content-length", b"")
    parts: list[bytes] = []
    size = int(declared) if declared.isdigit() else 0
    too_large = ApiError(413, f"the body has more than {most} bytes, which serve.max_body_mb allows", "body_too_large")
    if size > most:
        await drain_for(too_large, receive)
        raise too_large
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    parts.clear()
                    await drain_for(too_large, receive)
                    raise too_large
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        late = come_back(408, "the body did not arrive in serve.body_timeout seconds", "body_timeout", 1)
        late.headers["Connection"] = "close"
        raise late from None


async def drain(receive: Receive) -> bool:
    """Throw a body away: a client that is still sending would not read why it is refused. False if there is more."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
        return True
    except TimeoutError:
        return False


async def drain_for(refusal: ApiError, receive: Receive) -> None:
    """Throw a body away before a refusal; the connection is closed after it if the body has no end."""
    if not await drain(receive):
        refusal.headers["Connection"] = "close"
