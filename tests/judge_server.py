"""A judge for tests: a server of chat completions whose verdicts are a function of the question."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCK = re.compile(r"\[BEGIN (RESPONSE[ AB]*) (\w+)\]\n(.*?)\n\[END \1 \2\]", re.DOTALL)


class JudgeServer(ThreadingHTTPServer):
    """Remembers questions; `verdict` gives the text, `plan` what to do instead with the next requests."""

    verdict: Callable[[str], str]
    asked: list[dict]
    keys: list[str | None]
    plan: list[str | int]  # "slow", "hang up", "garbage" or a status, each for one request
    delay = 0.0
    daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


def blocks(question: str) -> list[str]:
    """The responses in a question, by their marks."""
    return [found[3] for found in BLOCK.finditer(question)]


class Handler(BaseHTTPRequestHandler):
    server: JudgeServer

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": "the-judge"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.keys.append(self.headers.get("Authorization"))
        time.sleep(self.server.delay)
        todo = self.server.plan.pop(0) if self.server.plan else 200
        if todo == "hang up":
            self.close_connection = True
            return
        if todo == "slow":
            time.sleep(2.0)
        if todo == "garbage":
            self._send(200, "<html>")
            return
        if isinstance(todo, int) and todo != 200:
            self._send(todo, {"error": {"message": "not now"}})
            return
        text = self.server.verdict(body["messages"][-1]["content"])
        self._send(200, {"choices": [{"message": {"role": "assistant", "content": text}}]})

    def _send(self, status: int, body: object) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if status == 429:
            self.send_header("Retry-After", "0")
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        with suppress(OSError):  # who asked may have given up
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(verdict: Callable[[str], str]) -> Iterator[JudgeServer]:
    """Run a judge in a thread."""
    server = JudgeServer(("127.0.0.1", 0), Handler)
    server.verdict, server.asked, server.keys, server.plan = verdict, [], [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
