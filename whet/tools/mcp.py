"""MCP servers, over standard input and output or streamable HTTP, with the official `mcp` package.

A server is started once for a run, in an event loop and thread of its own, which all samples share. One that ends, or
answers nothing after a call that took too long, is started again at the next call, a few times without an answered call
in between; calls that it leaves unanswered are errors that name it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from whet.envs.orphans import VARIABLE
from whet.errors import UserError
from whet.tools.mcp_results import tool_result
from whet.tools.protocol import ToolError, ToolResult

if TYPE_CHECKING:
    from mcp import Client

RESTARTS = 3  # of one server without an answered call in between
START_SECONDS = 60.0
CLOSE_SECONDS = 5.0
CHECK_SECONDS = 5.0  # for a server to show that it is still there
_KEYS = {"command", "args", "env", "cwd", "url", "headers", "auth_token", "type", "transport"}


class _Life:
    """One life of a server: from its start until it ends or is closed."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.tools: list[Any] = []
        self.ready = threading.Event()  # it answers, or has failed
        self.failure = ""  # why it ended
        self.stop: asyncio.Event | None = None
        self.check: asyncio.Future[None] | None = None  # under way after a call that took too long
        self.loop = asyncio.new_event_loop()
        self.thread: threading.Thread | None = None

    @property
    def is_up(self) -> bool:
        """True if calls can be made."""
        return self.client is not None and not self.failure


class McpServer:
    """A server by its entry in an `mcpServers` object; used from any thread or event loop."""

    def __init__(self, name: str, spec: Mapping[str, Any], seconds: float = START_SECONDS) -> None:
        """`spec` has a command with args, env and cwd, or a url with headers; `seconds` is the longest start."""
        self.name, self._spec, self._seconds = name, _checked(name, spec), seconds
        self._lock = threading.Lock()
        self._restarts = 0
        self._closed = False
        self._life = self._begin()
        if not self._life.is_up:
            self.close()
            raise UserError(f"MCP server {name} could not be started: {self._life.failure}")

    @property
    def tools(self) -> list[Any]:
        """Descriptions of the server's tools."""
        return self._life.tools

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool; `ToolError` if the server is gone or goes meanwhile."""
        life = self._life
        if life.check is not None and life.is_up:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_settled(life), life.loop))
        if not life.is_up:
            life = await asyncio.to_thread(self._revive)
        assert life.client is not None
        calling = asyncio.run_coroutine_threadsafe(self._answer(life, tool, arguments), life.loop)
        return tool_result(await asyncio.wrap_future(calling))

    def close(self) -> None:
        """End the server; the second time does nothing."""
        with self._lock:
            self._closed = True
            life = self._life
        _end(life)

    async def _answer(self, life: _Life, tool: str, arguments: dict[str, Any]) -> Any:
        """Return a tool's answer; runs in the server's event loop, where a call ends with the server."""
        from mcp import MCPError

        assert life.client is not None
        assert life.stop is not None
        call = asyncio.ensure_future(life.client.call_tool(tool, arguments))
        end = asyncio.ensure_future(life.stop.wait())
        try:
            await asyncio.wait([call, end], return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise ToolError(f"MCP server {self.name} ended during {tool}: {life.failure or 'closed'}")
            answer = call.result()
            self._restarts = 0
            return answer
        except ToolError:
            raise
        except asyncio.CancelledError:  # it took too long: the tool hangs, or the whole server
            if life.check is None or life.check.done():
                life.check = asyncio.ensure_future(self._check(life))
            raise
        except MCPError as error:
            if await _answers(life.client):
                raise ToolError(f"{tool}: {error}") from None
            self._fail(life, str(error))
        except Exception as error:  # of the transport: the connection is gone
            self._fail(life, f"{type(error).__name__}: {error}")
        finally:
            call.cancel()
            end.cancel()
        raise ToolError(f"MCP server {self.name} ended during {tool}: {life.failure}")

    async def _check(self, life: _Life) -> None:
        """End a life that answers nothing any more; calls that come meanwhile wait for the verdict."""
        assert life.client is not None
        if not await _answers(life.client):
            self._fail(life, "it no longer answers")

    def _fail(self, life: _Life, failure: str) -> None:
        life.failure = life.failure or failure[:300]
        if life.stop is not None:
            life.stop.set()

    def _revive(self) -> _Life:
        """Return a life that is up, a new one if need be; `ToolError` if there were too many."""
        with self._lock:
            if self._life.is_up:
                return self._life
            if self._closed or self._restarts >= RESTARTS:
                times = f" and was started again {self._restarts} times" if self._restarts else ""
                raise ToolError(f"MCP server {self.name} ended{times}: {self._life.failure or 'closed'}")
            self._restarts += 1
            _end(self._life)
            self._life = self._begin()
            if not self._life.is_up:
                raise ToolError(f"MCP server {self.name} could not be started again: {self._life.failure}")
            return self._life

    def _begin(self) -> _Life:
        """Start the server and wait until it has described its tools."""
        life = _Life()
        life.thread = threading.Thread(target=self._run, args=(life,), name=f"whet-mcp-{self.name}", daemon=True)
        life.thread.start()
        if not life.ready.wait(self._seconds):
            life.failure = f"it did not answer within {self._seconds:g} s"
            if life.stop is not None:
                life.loop.call_soon_threadsafe(life.stop.set)
        return life

    def _run(self, life: _Life) -> None:
        asyncio.set_event_loop(life.loop)
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            try:
                life.loop.run_until_complete(self._live(life, log))
            except BaseException as error:  # groups of exceptions, and what servers make the client raise
                life.failure = life.failure or _words(error)
            finally:
                log.seek(0)
                said = log.read().strip().splitlines()
                if life.failure and said:
                    life.failure = f"{life.failure} (its last line: {said[-1][:200]})"
                life.failure = life.failure or "closed"
                life.ready.set()
                life.loop.run_until_complete(life.loop.shutdown_asyncgens())
                life.loop.close()

    async def _live(self, life: _Life, log: Any) -> None:
        from mcp import Client

        life.stop = asyncio.Event()
        living = asyncio.ensure_future(self._serve(life, Client(self._transport(log))))
        stopping = asyncio.ensure_future(life.stop.wait())
        await asyncio.wait([living, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not living.done() and not life.ready.is_set():  # its start hangs
            living.cancel()
        await living

    async def _serve(self, life: _Life, client: Client) -> None:
        assert life.stop is not None
        async with client:
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                life.tools += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            life.client = client
            life.ready.set()
            await life.stop.wait()

    def _transport(self, log: Any) -> AbstractAsyncContextManager[Any]:
        if "url" in self._spec:
            from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

            headers = dict(self._spec.get("headers") or {})
            if self._spec.get("auth_token"):
                headers["Authorization"] = f"Bearer {self._spec['auth_token']}"
            return streamable_http_client(self._spec["url"], http_client=create_mcp_http_client(headers))
        from mcp import StdioServerParameters, stdio_client

        keys = {key: self._spec[key] for key in ("command", "args", "env", "cwd") if self._spec.get(key) is not None}
        # The package hands over a few variables only; by this one a server is found if the trainer is killed.
        mark = {name: os.environ[name] for name in (VARIABLE,) if name in os.environ}
        return stdio_client(StdioServerParameters(**keys | {"env": mark | keys.get("env", {})}), errlog=log)


def _checked(name: str, spec: Any) -> dict[str, Any]:
    if not isinstance(spec, Mapping) or ("command" in spec) == ("url" in spec):
        raise UserError(f"MCP server {name}: give it either a command or a url")
    unknown = sorted(set(spec) - _KEYS)
    if unknown:
        raise UserError(f"MCP server {name}: there is no key {unknown[0]}; there are {', '.join(sorted(_KEYS))}")
    return dict(spec)


async def _settled(life: _Life) -> None:
    if life.check is not None:
        await asyncio.shield(life.check)


async def _answers(client: Client) -> bool:
    """Return True if a server that refused a call is still there."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await client.list_tools(cache_mode="bypass")
    except Exception:
        return False
    return True


def _end(life: _Life) -> None:
    if life.stop is not None and not life.loop.is_closed():
        try:
            life.loop.call_soon_threadsafe(life.stop.set)
        except RuntimeError:  # it closed in between
            return
    if life.thread is not None:
        life.thread.join(CLOSE_SECONDS)


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]
