"""Ranks that join a watch from within a test, byte by byte."""

from __future__ import annotations

import socket

from patience import PATIENCE

from whet.distributed.frames import NONCE_BYTES, TAG_BYTES, Seal, nonce
from whet.distributed.watch import Watch


def raw_join(watch: Watch, rank: int) -> tuple[socket.socket, bytes, Seal]:
    """A connection, the message that would make it a rank's, and its tags."""
    line = socket.create_connection(watch.address, timeout=PATIENCE)
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
