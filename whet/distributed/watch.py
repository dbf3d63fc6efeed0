"""The caller's end of the connections to its workers: who is there, who died, who is silent, who is stuck.

A worker's death ends its connection and is known at once, a machine's by the silence. Strangers can neither join nor
disturb: what they send is compared with a tag and dropped, they have a few seconds and a few bytes, and once all ranks
have joined nobody listens any more.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from whet.distributed.frames import BEAT_BYTES, HELLO_BYTES, ForgedError, Seal, nonce, read_hello
from whet.distributed.heartbeat import BEAT_SECONDS

_MOST_STRANGERS = 64  # connections that have not shown the secret; the oldest gives way
_STRANGER_SECONDS = 10.0  # to show it
_PAUSE_SECONDS = 0.2  # before the next try when the system has no descriptors left


@dataclass
class Heartbeat:
    """Status of one worker."""

    silence: float = 0.0  # seconds since it was heard of
    call: int | None = None
    idle: float = 0.0  # seconds of its call in which it used no processor
    waiting: bool = False  # in a collective
    closed: bool = False


@dataclass
class _Line:
    """A connection: a stranger's until it has shown the secret, then a rank's."""

    connection: socket.socket
    nonce: bytes = field(default_factory=nonce)
    since: float = field(default_factory=time.monotonic)
    data: bytes = b""
    rank: int | None = None
    seal: Seal | None = None


class Watch:
    """The connections of all ranks of a group."""

    def __init__(self, address: str, size: int) -> None:
        """Listen at `address` for `size` ranks."""
        self._size = size
        self._listener = socket.create_server((address, 0), backlog=1024)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.secret = secrets.token_hex(32)
        self.lives: dict[int, Heartbeat] = {}
        self._lines: dict[socket.socket, _Line] = {}
        self._resume: float | None = None  # when to listen again
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
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            last = time.monotonic()
            try:
                while True:
                    wait = BEAT_SECONDS if self._resume is None else _PAUSE_SECONDS
                    ready = [key.fileobj for key, _ in selector.select(wait)]
                    if self._stopped in ready:
                        return
                    for each in ready:
                        if each is self._listener:
                            self._accept(selector)
                        elif (line := self._lines.get(each)) is not None and not self._read(line):  # type: ignore[call-overload]
                            self._drop(line, selector)
                    now = time.monotonic()
                    self._tidy(selector, now)
                    for life in list(self.lives.values()):
                        # Not all of a long pause: this process slept (Ctrl-Z), and the beats are in the mail.
                        life.silence += min(now - last, 2 * BEAT_SECONDS)
                    last = now
            finally:
                for open_socket in (self._listener, self._stopped, *self._lines):
                    open_socket.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection = self._listener.accept()[0]
        except BlockingIOError:  # whoever it was is gone
            return
        except OSError:  # no descriptors left: the listener would be ready again at once
            selector.unregister(self._listener)
            self._resume = time.monotonic() + _PAUSE_SECONDS
            return
        line = _Line(connection)
        try:
            connection.setblocking(False)
            connection.send(line.nonce)
            selector.register(connection, selectors.EVENT_READ)
        except OSError:
            connection.close()
            return
        self._lines[connection] = line
        strangers = [each for each in self._lines.values() if each.rank is None]
        if len(strangers) > _MOST_STRANGERS:
            self._drop(min(strangers, key=lambda each: each.since), selector)

    def _tidy(self, selector: selectors.BaseSelector, now: float) -> None:
        """Drop strangers whose time is up; stop listening when all ranks are there."""
        if self._resume is not None and now >= self._resume:
            self._resume = None
            selector.register(self._listener, selectors.EVENT_READ)
        complete = len(self.lives) == self._size
        if complete and self._listener.fileno() != -1:
            with contextlib.suppress(KeyError):
                selector.unregister(self._listener)
            self._listener.close()
            self._resume = None
        for line in [each for each in self._lines.values() if each.rank is None]:
            if complete or now - line.since > _STRANGER_SECONDS:
                self._drop(line, selector)

    def _drop(self, line: _Line, selector: selectors.BaseSelector) -> None:
        selector.unregister(line.connection)
        line.connection.close()
        del self._lines[line.connection]
        if line.rank is not None:
            self.lives[line.rank].closed = True

    def _read(self, line: _Line) -> bool:
        """Take what a connection has; False when it ended or does not keep to the protocol."""
        try:
            piece = line.connection.recv(4096)
            line.data += piece
            while len(line.data) >= (size := HELLO_BYTES if line.seal is None else BEAT_BYTES):
                message, line.data = line.data[:size], line.data[size:]
                self._take(line, message)
        except BlockingIOError:
            return True
        except (OSError, ForgedError):
            return False
        return bool(piece)

    def _take(self, line: _Line, message: bytes) -> None:
        if line.seal is None or line.rank is None:
            rank, line.seal = read_hello(self.secret, line.nonce, message, self._size)
            if rank in self.lives:
                raise ForgedError(f"rank {rank} a second time")
            line.rank = rank
            self.lives[rank] = Heartbeat()
            line.connection.send(line.seal.proof())
            return
        beat = line.seal.read_beat(message)
        self.lives[line.rank] = Heartbeat(call=beat.call, idle=beat.idle, waiting=beat.waiting)
