"""A server in a thread of the test's own process, on a tiny random model; or in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
import pytest
import uvicorn
from patience import PATIENCE, eventually
from tiny_models import MakeTiny

from whet.config import load_config
from whet.serving.opening import open_service
from whet.serving.server import server_options
from whet.serving.service import Service

TOKEN = "a-token-for-tests-0123456789"
NAME = "tiny"


def served(tiny: MakeTiny, seed: int = 0, **changes: Any) -> Path:
    """The folder of a model that ends its responses and has room for 512 tokens."""
    return Path(tiny("llama", seed, max_position_embeddings=512, eos_token_id=1, **changes).path)


class Server:
    """What tests need to know of a running server."""

    def __init__(self, service: Service, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.service, self.loop = service, loop
        self.address = f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {TOKEN}"}

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.address + path, headers=self.headers, timeout=PATIENCE)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = self.headers | {"Content-Type": "application/json"} | headers
        return httpx.post(self.address + path, content=content, headers=given, timeout=PATIENCE)

    def chat(self, **options: Any) -> httpx.Response:
        messages = [{"role": "user", "content": "the answer"}]
        return self.post("/v1/chat/completions", {"model": NAME, "messages": messages} | options)

    def complete(self, **options: Any) -> httpx.Response:
        return self.post("/v1/completions", {"model": NAME, "prompt": "the answer"} | options)

    def events(self, path: str, **options: Any) -> list[Any]:
        """The events of a stream, decoded; the last is "[DONE]"."""
        start = {"prompt": "the answer"} if path == "/v1/completions" else {}
        start = start or {"messages": [{"role": "user", "content": "the answer"}]}
        answer = self.post(path, {"model": NAME, "stream": True} | start | options)
        assert answer.status_code == 200, answer.text
        lines = [line for line in answer.text.split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        data = [line.removeprefix("data: ") for line in lines]
        return [json.loads(each) if each != "[DONE]" else each for each in data]

    def delay(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.02) -> None:
        """Make every token of a batch take this much longer: responses of 500 take ten seconds on any machine."""
        runner: Any = self.service.backend.engine._runner  # type: ignore[attr-defined]
        decode = runner.decode
        monkeypatch.setattr(runner, "decode", lambda running: (time.sleep(seconds), decode(running))[1])

    def idle(self) -> bool:
        """Wait until nothing is being decoded."""
        engine: Any = self.service.backend.engine
        return eventually(
            lambda: engine._driver is None and not engine._scheduler.running and not self.service.gate.running
        )


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Server]:
    """Serve a model folder until the end of the block."""
    config = load_config([f"worker.actor.model.model_path={folder}", f"serve.model_name={NAME}", *arguments])
    service = open_service(config, TOKEN, lambda text: None)
    options = server_options(service)
    options.port, options.timeout_graceful_shutdown = 0, 2
    server = uvicorn.Server(options)
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    try:
        yield Server(service, server.servers[0].sockets[0].getsockname()[1], loops[0])
    finally:
        server.should_exit = True
        thread.join(10)
        service.close()


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[SimpleNamespace]:
    """A `whet serve` process, once it serves."""
    process = subprocess.Popen(
        [sys.executable, "-m", "whet.cli", "serve", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if line.startswith("serving "):
                break
        assert process.poll() is None, "\n".join(lines)
        found = re.search(r"serving (\S+) at (http://\S+)/v1", lines[-1])
        assert found
        yield SimpleNamespace(process=process, lines=lines, name=found[1], address=found[2])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
