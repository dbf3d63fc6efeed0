"""The worker's end of the connection to its caller, over which it says all the time that it is there.

A worker sends a heartbeat every second. When the connection ends, so does the worker, with all that it started: no
death of the caller, however sudden, leaves workers behind.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Callable

from whet.distributed.frames import NONCE_BYTES, TAG_BYTES, Beat, Seal, nonce
from whet.system import groups

BEAT_SECONDS = 1.0
_JOIN_SECONDS = 30.0


def hold(address: tuple[str, int], secret: str, rank: int, read: Callable[[], Beat]) -> None:
    """Connect, beat from a thread of its own, and end this process with the connection; its group too if it leads it.

    ConnectionError where nobody at this address knows the secret.
    """
    end = time.monotonic() + _JOIN_SECONDS
    while True:
        try:
            line, seal = _join(address, secret, rank)
            break
        except OSError as error:  # strangers may keep the caller busy for a moment
            if time.monotonic() > end:
                raise ConnectionError(
                    f"rank {rank} could not join its caller at {address[0]}:{address[1]}: {error}"
                ) from error
            time.sleep(0.2)
    threading.Thread(target=_beat, args=(line, seal, read), name="heartbeat", daemon=True).start()


def _join(address: tuple[str, int], secret: str, rank: int) -> tuple[socket.socket, Seal]:
    line = socket.create_connection(address, timeout=_JOIN_SECONDS)
    try:
        own = nonce()
        seal = Seal(secret, _receive(line, NONCE_BYTES), own)
        line.sendall(seal.hello(own, rank))
        if not hmac.compare_digest(_receive(line, TAG_BYTES), seal.proof()):
            raise ConnectionError("another process listens there")
    except BaseException:
        line.close()
        raise
    return line, seal


def _receive(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = line.recv(size - len(data))
        if not piece:
            raise ConnectionError("it closed the connection")
        data += piece
    return data


def _beat(line: socket.socket, seal: Seal, read: Callable[[], Beat]) -> None:
    line.settimeout(BEAT_SECONDS)
    with contextlib.suppress(OSError):
        while True:
            line.sendall(seal.beat(read()))
            if _has_ended(line):
                break
    groups.end_own()


def _has_ended(line: socket.socket) -> bool:
    """Wait until the next beat; return True if the caller closed the connection."""
    try:
        return not line.recv(1)
    except TimeoutError:
        return False
