"""`whet board`: the process, on an address that only this machine can reach."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from whet.board.app import make_app
from whet.board.jobs import Jobs
from whet.board.runs import Runs
from whet.errors import UserError

HOST = "127.0.0.1"
_IDLE_SECONDS = 30
_LAST_SECONDS = 2


def serve(
    paths: Sequence[Path],
    port: int,
    say: Callable[[str], None],
    read_only: bool = False,
    control: bool = False,
) -> None:
    """Serve the board until Ctrl-C or SIGTERM; `read_only` prints a second link, for others."""
    runs, jobs = Runs(paths), Jobs()
    listening = _listen(port)
    try:
        token, read_token = secrets.token_urlsafe(24), secrets.token_urlsafe(24) if read_only else None
        app = make_app(runs, token, HOST, read_token=read_token, control=control, jobs=jobs)
        server = uvicorn.Server(_options(app))
        found = len(runs.find())
        say(f"{found} run{'s' * (found != 1)}; new ones appear by themselves")
        if read_token is not None:
            say(f"for reading alone: http://{HOST}:{listening.getsockname()[1]}/{read_token}/")
        say(f"board at http://{HOST}:{listening.getsockname()[1]}/{token}/  (Ctrl-C ends it)")
        # uvicorn raises the signal again once it has ended; a board that was told to end has not failed.
        before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            asyncio.run(server.serve(sockets=[listening]))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    finally:
        jobs.close()
        listening.close()


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        reason = error.strerror or error
        raise UserError(f"--port {port}: cannot listen there ({reason}); --port 0 takes one that is free") from None
    return listening


def _options(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http="h11",
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=64,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_LAST_SECONDS,
        h11_max_incomplete_event_size=65536,
    )
