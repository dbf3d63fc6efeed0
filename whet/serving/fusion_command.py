"""`whet sandbox serve`: the process of a server with Sandbox Fusion's API."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.sandbox.limits import Limits
from whet.sandbox.pool import Sandbox
from whet.sandbox.remote import TOKEN

_OPTIONS: dict[str, Callable[[str], Any]] = {
    "--host": str,
    "--port": int,
    "--workers": int,
    "--confine": str,
    "--timeout": float,
    "--memory": int,
    "--token-file": str,
}
_CONNECTIONS = 256


def run(arguments: list[str]) -> int:
    """Serve until told to end."""
    from whet.config.checks.serve import check_libraries

    options = parse(arguments)
    check_libraries()
    serve(options, lambda text: print(text, flush=True))
    return 0


def parse(arguments: list[str]) -> dict[str, Any]:
    """Return the options of a command line; UserError for others."""
    options: dict[str, Any] = {"--host": "127.0.0.1", "--port": 8080, "--workers": os.cpu_count() or 1}
    options |= {"--confine": "auto", "--timeout": 60.0, "--memory": 1024, "--token-file": None, "--allow-remote": False}
    left = list(arguments)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name == "--allow-remote":
            options[name] = True
        elif name not in _OPTIONS:
            raise UserError(f"whet sandbox serve: there is no option {name[:80]} (--help lists them)")
        elif not equals and not left:
            raise UserError(f"whet sandbox serve: {name} needs a value")
        else:
            text = value if equals else left.pop(0)
            try:
                options[name] = _OPTIONS[name](text)
            except ValueError:
                raise UserError(f"whet sandbox serve: {name} {text}: write a number") from None
    if not 0 <= options["--port"] <= 65535:
        raise UserError(f"whet sandbox serve: --port {options['--port']}: a port is a number from 0 to 65535")
    return options


def serve(options: dict[str, Any], say: Callable[[str], None]) -> None:
    """Open the pool, announce the address and answer requests."""
    from whet.config.checks.serve import is_loopback
    from whet.serving.access import read_token

    host, file = options["--host"], options["--token-file"]
    token = read_token(Path(file) if file is not None else None, TOKEN, "--token-file ")
    if not is_loopback(host):
        if not options["--allow-remote"]:
            raise UserError(f"--host {host}: other machines could connect; if they should, add --allow-remote")
        if token is None:
            raise UserError(f"--host {host}: other machines need a token: give --token-file or ${TOKEN}")
    most = Limits(timeout=options["--timeout"], memory_mb=options["--memory"])
    listening = _listen(host, options["--port"])
    try:
        sandbox = Sandbox(options["--workers"], options["--confine"], most)
        say(f"programs are confined by {sandbox.layers}, {sandbox.workers} at once")
        if token is None:
            token = secrets.token_urlsafe(32)
            say(f"token: {token}")
        _answer_requests(sandbox, most, token, host, listening, say)
    finally:
        listening.close()


def _answer_requests(
    sandbox: Sandbox, most: Limits, token: str, host: str, listening: socket.socket, say: Callable[[str], None]
) -> None:
    import uvicorn

    from whet.serving.connection import Limits as ConnectionLimits
    from whet.serving.connection import limited_connection
    from whet.serving.fusion import Fusion, make_fusion_app
    from whet.serving.hosts import Hosts

    service = Fusion(sandbox, most)
    limits = ConnectionLimits(_CONNECTIONS, _CONNECTIONS, header_timeout=10, idle_timeout=30, write_timeout=30)
    settings = uvicorn.Config(
        make_fusion_app(service, token, Hosts(host, [])),
        http=limited_connection(limits),
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(most.timeout) + 5,
    )
    # uvicorn raises the signal again once it has ended; without these that would skip ending the pool.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        listening.listen(_CONNECTIONS)
        address, port = listening.getsockname()[:2]
        say(f"serving at http://{f'[{address}]' if ':' in address else address}:{port}/run_code")
        asyncio.run(uvicorn.Server(settings).serve(sockets=[listening]))
    finally:
        service.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    say("ended")


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise UserError(f"--host {host} --port {port}: cannot listen there ({error.strerror or error})") from None
    return listening
