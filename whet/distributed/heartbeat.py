"""A connection between the caller and each worker that says all the time that both are there.

A worker sends a heartbeat every second. When the connection ends, so does the worker, with all that it started: no
death of the caller, however sudden, leaves workers behind. The caller learns of a worker's death in the same way, at
once, and of a machine's by the silence. Lines of JSON; a secret keeps strangers out.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

BEAT_SECONDS = 1.0
_LINE_LIMIT = 1 << 16  # bytes


def hold(address: tuple[str, int], secret: str, rank: int, read: Callable[[], dict[str, Any]]) -> None:
    """The worker's end: connect, beat from a thread of its own, and end this process group with the connection."""
    line = socket.create_connection(address, timeout=30)
    line.sendall(_line({"secret": secret, "rank": rank}))
    threading.Thread(target=_beat, args=(line, read), name="heartbeat", daemon=True).start()


def _beat(line: socket.socket, read: Callable[[], dict[str, Any]]) -> None:
    line.settimeout(BEAT_SECONDS)
    with contextlib.suppress(OSError):
        while True:
            line.sendall(_line(read()))
            if _has_ended(line):
                break
    os.killpg(os.getpgid(0), signal.SIGKILL)  # Ray makes each worker the leader of its group


def _has_ended(line: socket.socket) -> bool:
    """Whether the caller closed the connection; waits for that as long as until the next beat."""
    try:
        return not line.recv(1)
    except TimeoutError:
        return False


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


@dataclass
class Heartbeat:
    """What the caller knows of one worker."""

    silence: float = 0.0  # seconds since it was heard of
    call: int | None = None
    idle: float = 0.0  # seconds of its call in which it used no processor
    waiting: bool = False  # in a collective
    closed: bool = False


class Watch:
    """The caller's end of all lifelines of a group."""

    def __init__(self, address: str) -> None:
        self._listener = socket.create_server((address, 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.secret = secrets.token_hex(16)
        self.lives: dict[int, Heartbeat] = {}
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let go of the workers; those that live end themselves."""
        if self._thread.is_alive():
            self._stop.close()
            self._thread.join()

    def dead(self) -> list[int]:
        """Ranks whose connection ended."""
        return sorted(rank for rank, life in list(self.lives.items()) if life.closed)

    def silent(self, seconds: float) -> list[int]:
        """Ranks that have not been heard of for so long: stopped, or their machine is gone."""
        return sorted(rank for rank, life in list(self.lives.items()) if life.silence > seconds)

    def stuck(self, call: int, unfinished: Collection[int], seconds: float) -> list[int]:
        """Ranks that do nothing in a call. Those that wait for others are named only when nobody else is to blame."""
        idle = {
            rank: life for rank, life in list(self.lives.items())
            if rank in unfinished and life.call == call and life.idle > seconds
        }  # fmt: skip
        culprits = sorted(rank for rank, life in idle.items() if not life.waiting)
        return culprits or (sorted(idle) if len(idle) == len(unfinished) else [])

    def _listen(self) -> None:
        lines: dict[socket.socket, tuple[bytes, int | None]] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            last = time.monotonic()
            while True:
                for ready in [key.fileobj for key, _ in selector.select(BEAT_SECONDS)]:
                    assert isinstance(ready, socket.socket)
                    if ready is self._stopped:
                        for each in (self._listener, self._stopped, *lines):
                            each.close()
                        return
                    if ready is self._listener:
                        line = self._listener.accept()[0]
                        lines[line] = (b"", None)
                        selector.register(line, selectors.EVENT_READ)
                    elif not self._read(ready, lines):
                        selector.unregister(ready)
                        ready.close()
                        rank = lines.pop(ready)[1]
                        if rank is not None:
                            self.lives[rank].closed = True
                now = time.monotonic()
                for life in list(self.lives.values()):
                    # Not all of a long pause: it was this process that slept (Ctrl-Z), and the beats are in the mail.
                    life.silence += min(now - last, 2 * BEAT_SECONDS)
                last = now

    def _read(self, line: socket.socket, lines: dict[socket.socket, tuple[bytes, int | None]]) -> bool:
        """Take what a connection has; False when it ended or does not keep to the protocol."""
        text, rank = lines[line]
        try:
            piece = line.recv(4096)
        except OSError:
            return False
        *messages, text = (text + piece).split(b"\n")
        for message in messages:
            try:
                rank = self._take(json.loads(message), rank)
            except (ValueError, KeyError, TypeError):
                return False
        lines[line] = (text, rank)
        return bool(piece) and len(text) < _LINE_LIMIT

    def _take(self, message: dict[str, Any], rank: int | None) -> int:
        if rank is None:
            if not hmac.compare_digest(message["secret"], self.secret):
                raise ValueError("a stranger")
            self.lives[message["rank"]] = Heartbeat()
            return message["rank"]
        self.lives[rank] = Heartbeat(call=message["call"], idle=message["idle"], waiting=message["waiting"])
        return rank
