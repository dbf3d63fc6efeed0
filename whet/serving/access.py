"""The bearer token: where it comes from, and that every request but the open ones has it."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.errors import UserError
from whet.serving.connection import AUTHORIZED
from whet.serving.errors import ApiError
from whet.serving.guard import drain_for
from whet.serving.hosts import Hosts
from whet.serving.metrics import Metrics

TOKEN = "WHET_SERVE_TOKEN"
OPEN = frozenset({"/health", "/openapi.json"})
_SHORTEST = 16
_LABELLED = frozenset(
    {
        *("/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
        *("/v1/messages/count_tokens", "/v1/weights", "/metrics", "/health", "/openapi.json"),
    }
)


def read_token(file: Path | None, variable: str = TOKEN, key: str = "serve.token_file=") -> str | None:
    """Return the token of a file or of the environment; None where neither has one. A file that is missing is made."""
    if file is None:
        given, where = os.environ.get(variable), f"${variable}"
        if given is None:
            return None
    else:
        where = f"{key}{file}"
        given = _read_or_make(file, where)
    token = given.strip()
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"{where}: a token is {_SHORTEST} or more letters, digits and signs without spaces")
    return token


def _read_or_make(file: Path, where: str) -> str:
    try:
        if not file.exists():
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
                out.write(secrets.token_urlsafe(32) + "\n")
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{where}: cannot be read or written ({error})") from None


class Access:
    """Turns away who has no token or calls the server by another name, and counts answers."""

    def __init__(self, app: ASGIApp, token: str, hosts: Hosts, metrics: Metrics) -> None:
        self._app, self._token, self._hosts, self._metrics = app, token.encode(), hosts, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 401 or 403."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                label = path if path in _LABELLED else "other"
                self._metrics.count("whet_requests_total", path=label, status=str(message["status"]))
            await send(message)

        refusal = self._hosts.check(scope)
        if refusal is None:
            authorized = self._has_token(scope)
            if authorized:
                scope.setdefault("state", {})[AUTHORIZED] = True
            if authorized or path in OPEN:
                await self._app(scope, receive, counting)
                return
            text = "send the server's token: Authorization: Bearer TOKEN, or x-api-key: TOKEN"
            refusal = ApiError(401, text, "invalid_token", headers={"WWW-Authenticate": "Bearer"})
        await drain_for(refusal, receive)
        await refusal.response(path)(scope, receive, counting)

    def _has_token(self, scope: Scope) -> bool:
        """Return True for the one header that has the token; Anthropic's clients send x-api-key."""
        wanted = {b"authorization": b"Bearer " + self._token, b"x-api-key": self._token}
        given = [(name, value) for name, value in scope["headers"] if name in wanted]
        return len(given) == 1 and hmac.compare_digest(given[0][1], wanted[given[0][0]])
