"""Ranks that join a watch from within a test, byte by byte."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from whet.distributed.frames import NONCE_BYTES, TAG_BYTES, Seal, nonce
from whet.distributed.watch import Watch


def becomes_true(happened: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Whether something is the case, or is soon."""
    end = time.monotonic() + seconds
    while not (result := happened()) and time.monotonic() < end:
        time.sleep(0.05)
    return result


def raw_join(watch: Watch, rank: int) -> tuple[socket.socket, bytes, Seal]:
    """A connection, the message that would make it a rank's, and its tags."""
    line = socket.create_connection(watch.address, timeout=10)
    own = nonce()
    seal = Seal(watch.secret, _exactly(line, NONCE_BYTES), own)
    return line, seal.hello(own, rank), seal


def join(watch: Watch, rank: int) -> tuple[socket.socket, Seal]:
    """A rank that has joined."""
    line, hello, seal = raw_join(watch, rank)
    line.sendall(hello)
    assert _exactly(line, TAG_BYTES) == seal.proof()
    return line, seal


def _exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = line.recv(size - len(data))
        assert piece, "the watch closed the connection"
        data += piece
    return data
