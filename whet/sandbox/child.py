"""A forked process from its first instruction to the model's: confine, read the request, run it.

The request is read after the process is confined, and only then is any of it compiled or executed.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from typing import Any

from whet.sandbox import interpreter
from whet.sandbox.confine import CHANNEL, READY, REQUEST, Bounds, Confinement

CANNOT_RUN = 126
_LARGEST = 1 << 30  # bytes of a request


def run_child(mode: str, bounds: Bounds, confinement: Confinement, ready: socket.socket) -> None:
    """Run one request in this process; never returns."""
    try:
        os.setsid()
        listener = confinement.apply(bounds)
        if listener is None:
            ready.send(b"confined")
        else:
            socket.send_fds(ready, [b"confined"], [listener])
            os.close(listener)  # before anything else: a program that had it could allow itself refused calls
    except BaseException as error:
        ready.send(f"{type(error).__name__}: {error}"[:4000].encode(errors="replace"))
        os._exit(125)
    os.close(READY)
    request = _read_all(REQUEST)
    os.close(REQUEST)
    if mode == "script":  # the program alone, without files
        os.close(CHANNEL)
        interpreter.run_script(request.decode("utf-8", "surrogateescape"))
    else:
        _other(mode, json.loads(request))


def _other(mode: str, request: dict[str, Any]) -> None:
    """Write files, then run a command or one of the interpreter's modes."""
    try:
        for name, content in request.get("files", {}).items():
            _write(name, base64.b64decode(content))
        if mode == "execute":
            os.close(CHANNEL)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            for descriptor in (0, 1, 2):
                os.set_inheritable(descriptor, True)
            os.execve(request["argv"][0], request["argv"], os.environ)
    except OSError as error:
        os.write(2, f"sandbox: {error}\n".encode(errors="replace"))
        os._exit(CANNOT_RUN)
    interpreter.run(mode, request, CHANNEL)


def _write(name: str, content: bytes) -> None:
    if os.path.dirname(name):
        os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as file:
        file.write(content)


def _read_all(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    if size > _LARGEST:
        raise OSError("the request is too large")
    return os.pread(descriptor, size, 0)
