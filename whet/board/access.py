"""Who may see the board: requests whose path begins with one of its tokens and that call it by a name of this machine.

One token is for its owner, another can be passed on: with that one nothing can be started (`--read-only`).

The token is part of the path, so that scripts and styles of the page are under it too, and no cookie is needed, which
a browser would also send to other servers on this machine.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.serving.hosts import Hosts

# Nothing is loaded from elsewhere. plotly sets styles from scripts, which `style-src` must allow; styles are no code,
# and text of a model never becomes an element that could have one.
_POLICY = (
    b"default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Access:
    """Passes requests with a token on, without it in their path; answers 403, 404 or 405 to all others.

    `scope["owner"]` says whether the token was the owner's, with which requests may start something (POST).
    """

    def __init__(self, app: ASGIApp, token: str, host: str, read_token: str | None = None) -> None:
        self._app, self._hosts = app, Hosts(host, ())
        self._tokens = {True: token.encode()} | ({False: read_token.encode()} if read_token else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request; every answer gets the headers that keep the page to itself."""
        if scope["type"] != "http":
            return

        async def protecting(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        if self._hosts.check(scope) is not None:
            text = "the board answers requests to this machine by its own name; open the address that it printed"
            await _refuse(403, text, protecting)
        elif scope["method"] not in ("GET", "HEAD", "POST"):
            await _refuse(405, "the board answers GET and POST", protecting)
        elif (inner := self._inner(scope)) is None:
            await _refuse(404, "open the address that whet board printed: its token is missing or wrong", protecting)
        elif scope["method"] == "POST" and not inner["owner"]:
            await _refuse(405, "this link is for reading; nothing can be started with it", protecting)
        elif scope["method"] == "POST" and not _is_own_json(scope):
            await _refuse(403, "requests that start something are JSON, from the board's own page", protecting)
        else:
            await self._app(inner, receive, protecting)

    def _inner(self, scope: Scope) -> MutableMapping[str, Any] | None:
        """Return the request without the token in its path; None if it has another."""
        first, slash, rest = scope["path"].removeprefix("/").partition("/")
        owners = [owner for owner, token in self._tokens.items() if hmac.compare_digest(first.encode(), token)]
        if not slash or not owners:
            return None
        path = "/" + rest
        return {**scope, "path": path, "raw_path": path.encode(), "root_path": "", "owner": owners[0]}


def _is_own_json(scope: Scope) -> bool:
    """True if a request holds JSON and no other site's page sent it."""
    headers = {name.lower(): value for name, value in scope["headers"]}
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == b"application/json" and origin in (None, b"http://" + host)


async def _refuse(status: int, text: str, send: Send) -> None:
    body = json.dumps({"error": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
