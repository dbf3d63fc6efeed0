"""A forked process from its first instruction to the model's: confine, read the request, run it.

The request is read after the process is confined, and only then is any of it compiled or executed.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sys
from typing import Any

from whet.sandbox import interpreter
from whet.sandbox.confine import Layers, Rules, confine
from whet.sandbox.limits import Limits

REQUEST, CHANNEL, READY = 3, 4, 5  # descriptors beside stdin, stdout and stderr
CANNOT_RUN = 126


def run_child(order: dict[str, Any], limits: Limits, layers: Layers, rules: Rules | None, box: str) -> None:
    """Run one request in this process; never returns."""
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=READY)
    try:
        for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        listener = confine(layers, limits, box, rules)
        if listener is None:
            ready.send(b"confined")
        else:
            socket.send_fds(ready, [b"confined"], [listener])
            os.close(listener)  # before anything else: a program that had it could allow itself refused calls
    except BaseException as error:
        ready.send(f"{type(error).__name__}: {error}"[:4000].encode(errors="replace"))
        os._exit(125)
    ready.close()
    request = json.loads(_read_all(REQUEST))
    os.close(REQUEST)
    environment = _environment(box)
    try:
        for name, content in request.get("files", {}).items():
            _write(name, base64.b64decode(content))
        if order["mode"] == "execute":
            os.close(CHANNEL)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execve(request["argv"][0], request["argv"], environment)
    except OSError as error:
        os.write(2, f"sandbox: {error}\n".encode(errors="replace"))
        os._exit(CANNOT_RUN)
    os.environ.clear()
    os.environ.update(environment)
    interpreter.run(order["mode"], request, CHANNEL)


def _environment(box: str) -> dict[str, str]:
    """Return everything that a program sees of the environment."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": box,
        "TMPDIR": box,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("-packages")),
    }


def _write(name: str, content: bytes) -> None:
    if os.path.dirname(name):
        os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as file:
        file.write(content)


def _read_all(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0) if size < 1 << 30 else b"{}"
