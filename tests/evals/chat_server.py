"""A local server that speaks chat completions, strict about what it takes, and made to fail on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FIELDS = {"model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "n"}


class _Quiet(ThreadingHTTPServer):
    """Says nothing of clients that went away."""

    def handle_error(self, request: object, client_address: object) -> None: ...


class ChatServer:
    """Answers with `reply(body)`; `troubles` are statuses given before that, one for each request."""

    def __init__(self) -> None:
        self.reply: Callable[[dict[str, Any]], str] = lambda body: "yes"
        self.token: str | None = None
        self.troubles: list[tuple[int, dict[str, str]]] = []
        self.drop = 0  # connections that are closed without an answer
        self.seconds = 0.0  # that an answer takes
        self.asked: list[dict[str, Any]] = []  # bodies that were answered
        self.times: list[float] = []  # when requests began
        self.now = self.most = 0  # requests at once
        self._lock = threading.Lock()
        self._http = _Quiet(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        with self._lock:
            if self.troubles:
                status, headers = self.troubles.pop(0)
                return status, headers, {"error": {"message": f"trouble {status}"}}
        unknown = set(body) - FIELDS
        if unknown:
            return 400, {}, {"error": {"message": f"unknown field {sorted(unknown)}"}}
        try:
            text = self.reply(body)
        except ValueError as error:
            return 400, {}, {"error": {"message": str(error)}}
        time.sleep(self.seconds)
        with self._lock:
            self.asked.append(body)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return 200, {}, {"choices": [choice], "usage": {"completion_tokens": 3}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                good = self.path == "/v1/models"
                self._send(200 if good else 404, {}, {"data": [{"id": "tiny"}]} if good else {"error": "no"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    server.times.append(time.monotonic())
                    server.now += 1
                    server.most = max(server.most, server.now)
                    dropped = server.drop > 0
                    server.drop -= dropped
                try:
                    if dropped:
                        self.connection.close()
                    elif server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
                        self._send(401, {}, {"error": {"message": "who are you?"}})
                    elif self.path != "/v1/chat/completions":
                        self._send(404, {}, {"error": {"message": "no such path"}})
                    else:
                        self._send(*server.answer(body))
                finally:
                    with server._lock:
                        server.now -= 1

            def _send(self, status: int, headers: dict[str, str], value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                for name, text in headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        return Handler
