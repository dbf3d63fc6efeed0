"""JSON over HTTP to one server: timeouts, retries where nothing can have happened twice, and errors that name the key.

A connection serves one request and closes. Writing a response takes seconds and connecting takes microseconds, so
nothing is gained by keeping it; and a closed connection is how these servers learn that nobody waits any more.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import ssl
from email.message import Message
from http.client import HTTPException, HTTPResponse
from typing import Any, cast
from urllib.parse import urlsplit

from whet.config.schema import Config
from whet.errors import UserError

KEY = "worker.rollout.server_address"
TOKEN = "WHET_SERVER_TOKEN"  # the environment variable with the server's API key: a config file is no place for it
_WAITS = (0.2, 1.0, 3.0)  # seconds before each further try to connect
_LONGEST_QUOTE = 400

Answer = tuple[int, Message, bytes]  # status, headers, body


def server_token() -> str | None:
    """Return the server's API key, if the user has set one."""
    return os.environ.get(TOKEN)


def client_of(config: Config) -> Client:
    """Return a client of the server that the config names."""
    rollout = config.worker.rollout
    return Client(rollout.server_address or "", server_token(), rollout.server_timeout)


class HttpError(UserError):
    """An answer other than success."""

    def __init__(self, address: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{KEY}={address}: {path} answered {status}: {message}")
        self.status, self.message = status, message


class Client:
    """Requests to `address`, from any event loop."""

    def __init__(self, address: str, token: str | None = None, timeout: float = 1800.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"{KEY}={address}: write it as http://host:port")
        self.address, self.timeout = address.rstrip("/"), timeout
        self._host, self._port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Host": parts.netloc.rpartition("@")[2], "Connection": "close", "Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    async def get(self, path: str) -> Any:
        """The answer to GET; raises as `post`."""
        return await self._request("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to POST, read as JSON where it is; UserError where there is none, HttpError where it is a no."""
        return await self._request("POST", path, body)

    async def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            async with asyncio.timeout(self.timeout):
                status, _, data = await self._connected(
                    method, path, b"" if body is None else json.dumps(body).encode()
                )
        except TimeoutError:
            raise UserError(
                f"{KEY}={self.address}: no answer to {path} in {self.timeout:g} seconds; is the server stuck? "
                "worker.rollout.server_timeout waits longer"
            ) from None
        text = data.decode("utf-8", "replace")
        if status in (401, 403):
            raise UserError(f"{KEY}={self.address}: the server wants its API key: set the variable {TOKEN} to it")
        if not 200 <= status < 300:
            raise HttpError(self.address, path, status, text.strip()[:_LONGEST_QUOTE])
        try:
            return json.loads(text) if text.strip() else None
        except ValueError:
            return text

    async def _connected(self, method: str, path: str, payload: bytes) -> Answer:
        """Try again where the connection failed; whatever the server answers is an answer."""
        for wait in (*_WAITS, None):
            try:
                return await self.exchange(method, path, payload)
            except (OSError, HTTPException) as error:
                if wait is None:
                    reason = str(error) or type(error).__name__
                    raise UserError(f"{KEY}={self.address}: cannot be reached ({reason}); is the server up?") from error
                await asyncio.sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def exchange(self, method: str, path: str, payload: bytes) -> Answer:
        """One request and its answer as they are: no further try, no limit of time; OSError where nobody is there."""
        headers = self._headers | {"Content-Type": "application/json", "Content-Length": str(len(payload))}
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._ssl)
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + payload)
            await writer.drain()
            received = await reader.read()
        finally:
            writer.close()
        response = HTTPResponse(cast(Any, _Received(received)), method=method)
        response.begin()
        return response.status, response.headers, response.read()


class _Received:
    """Bytes that came over a socket, for the parser of the standard library, which wants the socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)
