"""The process for mathematics: reads a call a line, answers each from a fork with limits."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
from typing import Any

MEMORY = 1 << 30  # bytes that a call may add to what the imports take
RESULT_LIMIT = 1 << 20  # bytes


def serve() -> None:
    """Answer calls until the input ends."""
    from whet.rewards.answers import comparing

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name, arguments in comparing.EXAMPLES:  # parsers and tables that a first call builds
        getattr(comparing, name)(*arguments)
    gc.collect()
    gc.freeze()  # forks share the pages of what is imported
    answers = os.dup(1)
    os.dup2(2, 1)  # prints of the libraries are not answers
    for line in sys.stdin.buffer:
        message = json.loads(line)
        reply = {"result": True} if message["call"] == "ready" else _forked(comparing, message)
        os.write(answers, json.dumps(reply).encode() + b"\n")


def _forked(functions: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Make one call in a child; it is killed when its time is over."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _call(functions, message, write)
    os.close(write)
    try:
        output = _read(read, time.monotonic() + message["seconds"])
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if output is None:
        return {"error": f"it did not finish within {message['seconds']:g} s"}
    if not output:
        return {"error": "it ended its process"}
    return json.loads(output)


def _read(descriptor: int, deadline: float) -> bytes | None:
    """Everything until the other end closes; None at the deadline or beyond the limit."""
    output = b""
    while len(output) <= RESULT_LIMIT:
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return output
        output += piece
    return None


def _call(functions: Any, message: dict[str, Any], write: int) -> None:
    """Run the call and write its result; does not return."""
    reply: dict[str, Any]
    try:
        _limit(message["seconds"])
        reply = {"result": getattr(functions, message["call"])(*message["arguments"])}
    except BaseException as error:  # MemoryError, RecursionError, and whatever the libraries raise
        reply = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    try:
        left = memoryview(json.dumps(reply).encode())
        while left:
            left = left[os.write(write, left) :]
    finally:
        os._exit(0)


def _limit(seconds: float) -> None:
    import resource

    with open("/proc/self/statm") if os.path.exists("/proc/self/statm") else open(os.devnull) as file:
        pages = file.read().split()
    used = int(pages[0]) * resource.getpagesize() if pages else 0
    for limit, value in ((resource.RLIMIT_AS, used + MEMORY), (resource.RLIMIT_CPU, int(seconds) + 2)):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
