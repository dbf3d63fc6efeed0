"""`whet serve`: the process, from its first line of output to its last request.

The first SIGTERM or Ctrl-C lets requests finish for `serve.shutdown_timeout` seconds and cuts the rest with a note; a
second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from whet.config import Config, resolve_path, summary_lines
from whet.config.checks.serve import is_loopback
from whet.errors import UserError
from whet.serving.access import TOKEN, read_token
from whet.serving.app import make_app
from whet.serving.connection import Limits, limited_connection
from whet.serving.errors import come_back
from whet.serving.opening import open_service
from whet.serving.service import Service

_SPARE_CONNECTIONS = 192  # besides those that may be answered or wait: to be told 429, or how the server is
_FEWEST = 16  # connections, and those accepted in one go
_BACKLOG = 512  # connections that are accepted in one go, before the first of them can be closed
_OTHER_FILES = 128  # weights, libraries, pipes
_IDLE_SECONDS = 30
_LAST_WORDS = 5  # seconds for cut requests to say so


def serve(config: Config, say: Callable[[str], None]) -> None:
    """Serve until told to end."""
    settings = config.serve
    say("\n".join(summary_lines(config, "serve")))
    file = settings.token_file
    token = read_token(resolve_path(config, file) if file is not None else None)
    if token is None and not is_loopback(settings.host):
        raise UserError(f"serve.host={settings.host}: other machines need a token: set serve.token_file or ${TOKEN}")
    listening = _listen(settings.host, settings.port)
    try:
        service = open_service(config, token or secrets.token_urlsafe(32), say)
        try:
            server = _Server(server_options(service), service, say)
            with server.heeding_signals():
                listening.listen(_BACKLOG)  # whoever reads that it serves may connect at once
                _announce(service, listening, None if token else service.token, say)
                asyncio.run(server.serve(sockets=[listening]))
            if service.failure is not None:
                raise UserError(service.failure)
            say("ended")
        finally:
            service.close()
    finally:
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before anything is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        reason = error.strerror or error
        raise UserError(f"serve.host={host} serve.port={port}: cannot listen there ({reason})") from None
    return listening


def _announce(service: Service, listening: socket.socket, token: str | None, say: Callable[[str], None]) -> None:
    host, port = listening.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    gate, longest = service.gate, service.maker.max_len
    say(f"{gate.concurrent} requests at once, {gate.queued} may wait; {longest} tokens with their responses")
    if token is not None:
        say(f"token: {token}")
    say(f"serving {service.name} at http://{host}:{port}/v1")


def server_options(service: Service) -> uvicorn.Config:
    """Return uvicorn's options for a service, with the limits of its connections."""
    settings, gate = service.config.serve, service.gate
    connections, backlog = _allowed_connections(gate.concurrent + gate.queued + _SPARE_CONNECTIONS)
    limits = Limits(
        connections=connections,
        burst=backlog,
        header_timeout=settings.header_timeout,
        idle_timeout=_IDLE_SECONDS,
        write_timeout=settings.write_timeout,
    )
    return uvicorn.Config(
        make_app(service),
        http=limited_connection(limits),
        ws="none",
        lifespan="off",
        log_config=None,  # uvicorn's own needs a stdout, which may be closed
        log_level="error",  # warnings are about what strangers send, as often as they like
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=backlog,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=int(settings.shutdown_timeout) + 2 * _LAST_WORDS,
        h11_max_incomplete_event_size=65536,
    )


def _allowed_connections(wanted: int) -> tuple[int, int]:
    """Raise the limit of open files as far as needed; return how many connections there may be, and arrive at once.

    There is room for twice as many to arrive: asyncio accepts them all before those that are too many can be closed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 2 * _BACKLOG + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted, _BACKLOG
    files = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    backlog = max(_FEWEST, min(_BACKLOG, (files - _OTHER_FILES) // 4))
    return max(_FEWEST, min(wanted, files - _OTHER_FILES - 2 * backlog)), backlog


class _Server(uvicorn.Server):
    """uvicorn's, which lets requests finish before it closes."""

    def __init__(self, options: uvicorn.Config, service: Service, say: Callable[[str], None]) -> None:
        super().__init__(options)
        self._service, self._say = service, say
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """Handle signals inside the context: uvicorn does so while it serves, and raises them again afterwards.

        Without this one that comes before would skip ending, and one that is raised again closing the engine.
        """
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Remember the loop that signals must reach."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Return True if the server must end: its engine has failed, and a supervisor may restart it."""
        return await super().on_tick(counter) or self._service.failure is not None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal takes no more requests and gives those there are some time."""
        if self._loop is not None and self._loop.is_running() and not self._service.gate.ending:
            self._service.gate.ending = True
            self._loop.call_soon_threadsafe(self._end_requests)
            super().handle_exit(signal.SIGTERM, frame)
        else:
            self.force_exit = self.should_exit = True

    def _end_requests(self) -> None:
        gate, grace = self._service.gate, self._service.config.serve.shutdown_timeout
        left = gate.running + gate.waiting
        if left:
            self._say(f"ending: {left} requests have {grace:g} s to finish")
        note = come_back(503, "the server was shut down while this was being written", "shutting_down", 5)
        asyncio.get_running_loop().call_later(grace, gate.end_all, note)
