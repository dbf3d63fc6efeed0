"""Messages of a length and that many bytes over a socket, without waiting for the other side."""

from __future__ import annotations

import socket

from whet.rewards.wire import LENGTH, WireError


class Channel:
    """Sends messages as fast as the other side reads them, and puts together the one that it sends."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._outgoing = memoryview(b"")
        self._incoming = bytearray()

    def fileno(self) -> int:
        """The file descriptor to wait for."""
        return self._socket.fileno()

    @property
    def is_sending(self) -> bool:
        """True while part of a message is unsent."""
        return len(self._outgoing) > 0

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._socket.fileno() == -1

    def send(self, message: bytes) -> None:
        """Begin to send; `go_on` sends the rest."""
        self._outgoing = memoryview(LENGTH.pack(len(message)) + message)
        self.go_on()

    def go_on(self) -> None:
        """Send what the other side takes now."""
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[self._socket.send(self._outgoing) :]
        except BlockingIOError:
            pass
        except OSError:  # the other side is gone: the read that follows says so
            self._outgoing = memoryview(b"")

    def receive(self, limit: int) -> bytes | None:
        """The next message, or None if it is incomplete; EOFError at the end, WireError on one above the limit."""
        while True:
            if len(self._incoming) >= LENGTH.size:
                (size,) = LENGTH.unpack_from(self._incoming)
                if size > limit:
                    raise WireError("it is too long")
                end = LENGTH.size + size
                if len(self._incoming) >= end:
                    message = bytes(self._incoming[LENGTH.size : end])
                    del self._incoming[:end]
                    return message
            try:
                piece = self._socket.recv(1 << 16)
            except BlockingIOError:
                return None
            except OSError:
                raise EOFError from None
            if not piece:
                raise EOFError
            self._incoming += piece

    def is_silent(self) -> bool:
        """True while the other side is there and has sent nothing that was not asked for."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self._incoming
        except OSError:
            pass
        return False

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()
