"""Who is let in to fetch weights, and what strangers can do about it: nothing."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from patience import PATIENCE

from whet.rollout.engines.vllm import doorway as module
from whet.rollout.engines.vllm.child.whet_vllm_wire import send
from whet.rollout.engines.vllm.doorway import Doorway

SHOWN_OUT = module._SHOW_SECONDS  # before a test changes it


@pytest.fixture
def doorway() -> Iterator[Doorway]:
    doorway = Doorway("127.0.0.1", "token")
    yield doorway
    doorway.close()


def connect(doorway: Doorway) -> socket.socket:
    return socket.create_connection(doorway.address, timeout=PATIENCE)


def enters(doorway: Doorway) -> bool:
    """Whether a worker with the token is let in before a stranger would be shown out."""
    with connect(doorway) as worker:
        start = time.monotonic()
        send(worker, {"token": "token", "device": "GPU 7"})
        connection, device = doorway.admit()
        connection.close()
        return device == "GPU 7" and time.monotonic() - start < SHOWN_OUT


def is_dropped(stranger: socket.socket, data: bytes = b"") -> bool:
    """Whether the connection ends, before or after all of the data was sent; it fails when nothing happens."""
    try:
        stranger.sendall(data)
        stranger.shutdown(socket.SHUT_WR)
        return stranger.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:  # reset, broken pipe or no longer connected: how early it ended decides which
        return True


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 16,  # a header of 8 EB
        struct.pack("!QQ", 2, 2**63) + b"{}",
        struct.pack("!QQ", 2**29, 0),
        struct.pack("!QQ", 4000, 0) + b"[" * 4000,
        struct.pack("!QQ", 2, 0) + b"[]",
        struct.pack("!QQ", 4, 0) + b"null",
        struct.pack("!QQ", 3, 0) + b"\xff\xfe\xfd",
        struct.pack("!QQ", 18, 0) + b'{"token":"\\ud800"}',
        struct.pack("!QQ", 13, 0) + b'{"token":[1]}',
        struct.pack("!QQ", 11, 0) + b'{"token":0}',
    ],
)
def test_what_strangers_send_keeps_nobody_out(doorway: Doorway, data: bytes):
    with connect(doorway) as stranger:
        assert is_dropped(stranger, data)
    assert enters(doorway)


def test_silent_strangers_keep_nobody_waiting(doorway: Doorway):
    crowd = [connect(doorway) for _ in range(150)]
    assert enters(doorway)
    for stranger in crowd:
        stranger.close()


def test_a_byte_now_and_then_is_not_enough(doorway: Doorway, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_SHOW_SECONDS", 0.5)
    with connect(doorway) as slow:
        end, dropped = time.monotonic() + PATIENCE, False
        while not dropped and time.monotonic() < end:
            try:
                slow.sendall(b"\0")
                time.sleep(0.1)
            except OSError:
                dropped = True
    assert dropped
    assert enters(doorway)


def test_closing_wakes_who_waits_and_drops_who_tries(doorway: Doorway):
    with connect(doorway) as stranger:
        doorway.close()
        with pytest.raises(OSError, match="nobody is let in"):
            doorway.admit()
        assert is_dropped(stranger)
    with pytest.raises(ConnectionRefusedError):
        connect(doorway)
