"""The endpoint of a run: OpenAI's and Anthropic's APIs on the loopback interface, one key for each sample.

The server has an event loop and a thread of its own. Sessions are opened and closed from any other event loop; their
calls are answered in the server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from whet.envs.harness.apis import ChatExchange, Exchange, Kept, MessagesExchange, ResponsesExchange, error_body
from whet.envs.harness.calls import ChatCall, Reply
from whet.envs.harness.contents import RefusedError
from whet.envs.harness.scores import Scores, read_scores
from whet.envs.observations import BadResultError
from whet.errors import UserError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MOST_BYTES = 256 * 2**20  # of a body: a conversation with its pictures comes with every call
_LOOK_SECONDS = 0.5  # between two looks at whether a client is still there
_START_SECONDS = 30.0
Gone = Callable[[], Awaitable[bool]]  # says whether the client has left


class Session(Protocol):
    """One sample, as the server sees it."""

    row: dict[str, Any]
    posted: Scores | None  # the latest reward that was posted

    async def chat(self, call: ChatCall, gone: Gone) -> Reply:
        """Answer a call; a turn whose client is `gone` by then is not recorded."""
        ...

    async def count(self, call: ChatCall) -> int:
        """Return the number of tokens that the policy would read for a call."""
        ...


@dataclass(slots=True)
class _Open:
    session: Session
    kept: Kept = field(default_factory=dict)
    calls: set[asyncio.Task[Any]] = field(default_factory=set)


class SessionServer:
    """Answers the calls of all harnesses of a run."""

    def __init__(self) -> None:
        """Begin to listen; `UserError` where the packages for it are missing."""
        try:
            import starlette  # noqa: F401
            import uvicorn
        except ImportError as error:
            raise UserError(f"worker.rollout.agent needs a package: {error}; pip install 'whet[agents]'") from None
        self._sessions: dict[str, _Open] = {}
        self._ended: set[str] = set()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._server = uvicorn.Server(
            uvicorn.Config(
                _app(self),
                ws="none",
                lifespan="off",
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=600,
                timeout_graceful_shutdown=1,
            )
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="whet-sessions", daemon=True)
        self._thread.start()

    def open(self, session: Session) -> str:
        """Return the key under which calls reach a session from now on."""
        key = f"whet-{secrets.token_urlsafe(24)}"
        self._sessions[key] = _Open(session)
        return key

    async def end(self, key: str) -> None:
        """Answer no further calls of a session; those under way are cancelled and have ended on return."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(key), self._loop))

    def close(self) -> None:
        """End the server and its thread."""
        self._server.should_exit = True
        self._thread.join(10.0)
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        logging.getLogger("asyncio").addFilter(_no_reset)
        self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))
        self._loop.close()

    async def _end(self, key: str) -> None:
        ended = self._sessions.pop(key, None)
        self._ended.add(key)
        calls = list(ended.calls) if ended is not None else []
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def find(self, key: str) -> _Open:
        """Return the session of a key; `RefusedError` where there is none."""
        found = self._sessions.get(key)
        if found is None and key in self._ended:
            raise RefusedError(410, "this sample has ended", "session_ended")
        if found is None:
            raise RefusedError(401, "the API key is not that of a sample", "invalid_api_key")
        return found


def _no_reset(record: logging.LogRecord) -> bool:
    """Leave out what asyncio logs of clients that were killed while they were answered."""
    return "socket.send() raised exception" not in record.getMessage()


def _app(server: SessionServer) -> Any:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import StreamingResponse
    from starlette.routing import Mount, Route

    def route(kind: Callable[[Any, Kept], Exchange]) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            found = server.find(_key(request))
            exchange = kind(await _body(request), found.kept)
            reply = await _answered(found, exchange.call, request)
            if exchange.call.stream:
                return StreamingResponse(_all(exchange.events(reply)), media_type="text/event-stream")
            return _as_json(exchange.answer(reply))

        return answered

    async def count(request: Request) -> Response:
        found = server.find(_key(request))
        exchange = MessagesExchange(await _body(request), found.kept, counts=True)
        return _as_json({"input_tokens": await found.session.count(exchange.call)})

    async def reward(request: Request) -> Response:
        found = server.find(_key(request))
        try:
            found.session.posted = read_scores(await _body(request))
        except BadResultError as error:
            raise RefusedError(400, f"the reward: {error}") from None
        return _as_json({"recorded": True})

    async def row(request: Request) -> Response:
        return _as_json(server.find(_key(request)).session.row)

    async def models(request: Request) -> Response:
        server.find(_key(request))
        return _as_json({"object": "list", "data": [{"id": "policy", "object": "model", "owned_by": "whet"}]})

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        return _as_json(error_body(request.scope["path"], error), error.status)

    async def unrouted(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = f"{request.method} {request.scope['path'][:200]}: {error.detail.lower()}"
        return await refused(request, RefusedError(error.status_code, text, "not_found"))

    routes = [
        Route("/v1/chat/completions", route(ChatExchange), methods=["POST"]),
        Route("/v1/responses", route(ResponsesExchange), methods=["POST"]),
        Route("/v1/messages", route(MessagesExchange), methods=["POST"]),
        Route("/v1/messages/count_tokens", count, methods=["POST"]),
        Route("/v1/reward", reward, methods=["POST"]),
        Route("/reward", reward, methods=["POST"]),
        Route("/v1/row", row),
        Route("/v1/models", models),
    ]
    handlers: dict[Any, Any] = {RefusedError: refused, HTTPException: unrouted}
    return Starlette(routes=[Mount("/sessions/{key}", routes=routes), *routes], exception_handlers=handlers)


def _as_json(value: Any, status: int = 200) -> Response:
    """Answer in ASCII: a policy may write half of a surrogate pair, which has no place in UTF-8."""
    from starlette.responses import Response as Sent

    return Sent(json.dumps(value, default=str), status, media_type="application/json")


async def _all(events: Any) -> Any:
    for event in events:
        yield event


async def _answered(found: _Open, call: ChatCall, request: Request) -> Reply:
    """Have a call answered; it ends with its session, and when its client leaves."""
    work = asyncio.create_task(found.session.chat(call, request.is_disconnected))
    found.calls.add(work)
    try:
        while not work.done():
            await asyncio.wait([work], timeout=_LOOK_SECONDS)
            if not work.done() and await request.is_disconnected():
                work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await work
        raise RefusedError(410, "this sample has ended", "session_ended")
    finally:
        work.cancel()
        found.calls.discard(work)


def _key(request: Request) -> str:
    """Return the key of a request's session: of its path, or its API key."""
    if key := request.path_params.get("key"):
        return str(key)
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else request.headers.get("x-api-key", "")


async def _body(request: Request) -> Any:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BYTES:
            raise RefusedError(413, f"the body has more than {MOST_BYTES} bytes", "too_large")
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise RefusedError(400, "the body is not JSON") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
