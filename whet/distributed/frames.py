"""Messages between a worker and the watch: fixed sizes, each with a tag that only who knows the secret can make.

    watch → worker   32 random bytes
    worker → watch   32 random bytes, its rank, tag
    watch → worker   tag
    worker → watch   a heartbeat and its tag, every second

Tags cover the random bytes of both sides and the number of the message on its connection, so that nothing can be
replayed. Nothing is parsed before its tag was checked, and the secret itself is never sent.
"""

from __future__ import annotations

import hmac
import math
import secrets
import struct
from dataclasses import dataclass

NONCE_BYTES = 32
TAG_BYTES = 32
_RANK = struct.Struct("!q")
_BEAT = struct.Struct("!qdB")
_COUNT = struct.Struct("!Q")
HELLO_BYTES = NONCE_BYTES + _RANK.size + TAG_BYTES
BEAT_BYTES = _BEAT.size + TAG_BYTES


class ForgedError(ValueError):
    """A message that does not carry the secret, or holds what no worker says."""


@dataclass(frozen=True)
class Beat:
    """A heartbeat: the call that a worker is in, its idle seconds in it, and whether it waits for other ranks."""

    call: int | None
    idle: float
    waiting: bool


class Seal:
    """Tags of one connection."""

    def __init__(self, secret: str, watch_nonce: bytes, worker_nonce: bytes) -> None:
        self._key = hmac.digest(secret.encode(), b"whet" + watch_nonce + worker_nonce, "sha256")
        self._beats = 0

    def hello(self, worker_nonce: bytes, rank: int) -> bytes:
        """The first message of a worker."""
        content = worker_nonce + _RANK.pack(rank)
        return content + self._tag(b"rank", content)

    def proof(self) -> bytes:
        """The answer by which a worker knows the watch."""
        return self._tag(b"watch", b"")

    def beat(self, beat: Beat) -> bytes:
        """The next heartbeat."""
        content = _BEAT.pack(-1 if beat.call is None else beat.call, beat.idle, beat.waiting)
        return content + self._next_tag(content)

    def read_beat(self, data: bytes) -> Beat:
        """The next heartbeat of a worker; ForgedError for anything else."""
        content, tag = data[: _BEAT.size], data[_BEAT.size :]
        if not hmac.compare_digest(tag, self._next_tag(content)):
            raise ForgedError("a heartbeat without the secret")
        call, idle, waiting = _BEAT.unpack(content)
        if call < -1 or waiting > 1 or not math.isfinite(idle) or idle < 0:
            raise ForgedError("no heartbeat of a worker")
        return Beat(None if call == -1 else call, idle, bool(waiting))

    def _next_tag(self, content: bytes) -> bytes:
        self._beats += 1
        return self._tag(b"beat", _COUNT.pack(self._beats) + content)

    def _tag(self, label: bytes, content: bytes) -> bytes:
        return hmac.digest(self._key, label + content, "sha256")


def nonce() -> bytes:
    """Random bytes that make the tags of a connection its own."""
    return secrets.token_bytes(NONCE_BYTES)


def read_hello(secret: str, watch_nonce: bytes, data: bytes, size: int) -> tuple[int, Seal]:
    """The rank that a worker says it is, of `size`, and the tags of its connection; ForgedError for anything else."""
    worker_nonce, rank = data[:NONCE_BYTES], _RANK.unpack(data[NONCE_BYTES:-TAG_BYTES])[0]
    seal = Seal(secret, watch_nonce, worker_nonce)
    if not hmac.compare_digest(seal.hello(worker_nonce, rank), data):
        raise ForgedError("a stranger")
    if not 0 <= rank < size:
        raise ForgedError(f"rank {rank} of {size}")
    return rank, seal
