"""A listener that lets in who knows a token, whatever strangers do meanwhile.

Every connection has a few seconds and a few kilobytes to show the token, all of them at the same time, so that silent
or slow ones keep nobody waiting; there is a bound on how many may try at once.
"""

from __future__ import annotations

import contextlib
import hmac
import queue
import socket
import threading
import time

from whet.rollout.engines.vllm.child.whet_vllm_wire import receive_note

_SHOW_SECONDS = 10.0
_MOST_STRANGERS = 64
_PAUSE_SECONDS = 0.1


class Doorway:
    """Connections that showed the token, in the order in which they did, with the device that each says it is on."""

    def __init__(self, host: str, token: str) -> None:
        self._token = token.encode()
        self._listener = socket.create_server((host, 0), backlog=128)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._admitted: queue.SimpleQueue[tuple[socket.socket, str] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, None] = {}  # in the order they came
        self._closed = False
        threading.Thread(target=self._accept, name="whet-doorway", daemon=True).start()

    def admit(self) -> tuple[socket.socket, str]:
        """Wait for the next connection; OSError once this is closed."""
        if (found := self._admitted.get()) is None:
            raise OSError("nobody is let in any more")
        return found

    def close(self) -> None:
        """Stop listening, and drop who has not shown the token yet; a second time does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            left = list(self._strangers)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in left:
            _hang_up(connection)
        self._admitted.put(None)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed, or no descriptors left for now
                time.sleep(_PAUSE_SECONDS)
                continue
            with self._lock:
                self._strangers[connection] = None
                oldest = next(iter(self._strangers)) if len(self._strangers) > _MOST_STRANGERS else None
            if oldest is not None:
                _hang_up(oldest)
            try:
                threading.Thread(target=self._meet, args=(connection,), daemon=True).start()
            except RuntimeError:  # no more threads
                self._forget(connection)
                connection.close()

    def _meet(self, connection: socket.socket) -> None:
        # A timer and not only a timeout: one that sends a byte now and then must not stay.
        timer = threading.Timer(_SHOW_SECONDS, _hang_up, [connection])
        timer.daemon = True
        timer.start()
        try:
            connection.settimeout(_SHOW_SECONDS)
            message = receive_note(connection)
            known = hmac.compare_digest(str(message.get("token", "")).encode(errors="replace"), self._token)
        except (OSError, EOFError, ValueError):
            known = False
        finally:
            timer.cancel()
            self._forget(connection)
        if not known or self._closed:
            connection.close()
            return
        connection.settimeout(None)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._admitted.put((connection, str(message.get("device", ""))))

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._strangers.pop(connection, None)


def _hang_up(connection: socket.socket) -> None:
    """End a connection that another thread reads from, which then closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
