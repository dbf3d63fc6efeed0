"""The trainer's end of a weight update: a listener that streams buckets to every worker of vLLM at once.

The weights are read once, whatever the number of workers. Who connects must know a token that only the control channel
carries.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
from typing import Any

from whet.rollout.engine import Weights
from whet.rollout.vllm.child.whet_vllm_wire import buckets, checksum, receive, send

BUCKET_BYTES = 1 << 28


class WeightSender:
    """Serves one version of the weights to a number of workers, then is done."""

    def __init__(self, weights: Weights, version: int, workers: int, host: str = "127.0.0.1") -> None:
        self.version, self.token = version, secrets.token_hex(16)
        self.count = self.total = 0
        self.error: BaseException | None = None
        self._weights, self._workers = weights, workers
        self._listener = socket.create_server((host, 0))
        self.host, self.port = self._listener.getsockname()[:2]
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, name="whet-weights", daemon=True)
        self._thread.start()

    def __enter__(self) -> WeightSender:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes a thread that still waits for a worker
        self._listener.close()
        self._thread.join()

    def offer(self) -> dict[str, str]:
        """Where a worker finds these weights."""
        return {"host": self.host, "port": str(self.port), "token": self.token, "version": str(self.version)}

    def check(self, received: list[dict[str, str]]) -> None:
        """Raise unless every worker says that it has all of them, as they were sent."""
        sent = {"version": str(self.version), "tensors": str(self.count), "sum": str(self.total)}
        wrong = [each for each in received if each != sent]
        if wrong or len(received) != self._workers:
            raise RuntimeError(f"vLLM's workers hold other weights than were sent: {received}, sent {sent}")

    def _run(self) -> None:
        try:
            while len(self._connections) < self._workers:
                self._accept()
            for table, flat in buckets(self._weights(), BUCKET_BYTES):
                found = checksum(flat)
                self._send({"tensors": table, "sum": found}, flat.numpy().data)
                self.count, self.total = self.count + len(table), self.total + found
            self._send({"done": True, "version": str(self.version), "count": self.count})
        except OSError:
            pass  # a worker hung up, or nobody came; the control channel says why
        except BaseException as error:  # reading the weights failed; whoever waits for the update raises it
            self.error = error
        finally:
            for connection in self._connections:
                connection.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(10)  # a stranger that says nothing must not stop the others
        try:
            message, _ = receive(connection)
        except (OSError, EOFError, ValueError):
            message = {}
        if not hmac.compare_digest(str(message.get("token", "")).encode(), self.token.encode()):
            connection.close()
            return
        connection.settimeout(None)
        self._connections.append(connection)

    def _send(self, message: dict[str, Any], body: memoryview | None = None) -> None:
        for connection in self._connections:
            send(connection, message, body)
