"""A model behind `whet serve` scores what it scores in this process."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from evals.conftest import read_lines
from whet_process import start, write_rows

from whet.cli import examples_folder

pytest.importorskip("uvicorn")
TOKEN = "a-token-for-tests-0123456789"
CONFIG = f"config={examples_folder() / 'quickstart.yaml'}"
GREEDY = ("worker.rollout.val_override_config.n=1", "worker.rollout.val_override_config.temperature=0")


@pytest.mark.slow
def test_the_same_answers_over_the_api(
    whet: Callable[..., str], here: Path, quickstart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(here / "few.jsonl", read_lines(quickstart / "test.jsonl")[:24])
    arguments = ("eval", CONFIG, "data.val_files=few.jsonl", "trainer.device=cpu", *GREEDY)
    whet(*arguments, "eval.output=engine")
    (here / "token").write_text(TOKEN)
    monkeypatch.setenv("WHET_API_KEY", TOKEN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = start(
        here, "serve", "whet/quickstart", f"serve.port={port}", "serve.token_file=token", "trainer.device=cpu"
    )
    try:
        assert server.wait_for(lambda: _is_up(port)), server.text()
        address = f"eval.api.base_url=http://127.0.0.1:{port}/v1"
        whet(*arguments, "eval.via=api", address, "eval.output=api")
        monkeypatch.setenv("WHET_SERVER_TOKEN", TOKEN)
        here_and_there = (
            "generate",
            CONFIG,
            "generate.files=few.jsonl",
            "worker.rollout.n=1",
            "worker.rollout.temperature=0",
        )
        whet(*here_and_there, "generate.output=here.jsonl")
        server_engine = ("worker.rollout.name=openai", f"worker.rollout.server_address=http://127.0.0.1:{port}")
        assert "model:" not in whet(*here_and_there, *server_engine, "generate.output=there.jsonl")  # no weights here
        assert Path("here.jsonl").read_text() == Path("there.jsonl").read_text()
    finally:
        server.kill()
    engine, api = ([row["response"] for row in read_lines(f"{name}/val/samples.jsonl")] for name in ("engine", "api"))
    assert engine == api
    engine_report, api_report = (json.loads(Path(f"{name}/report.json").read_text()) for name in ("engine", "api"))
    scores = [report["datasets"]["val"]["metrics"]["reward"] for report in (engine_report, api_report)]
    assert scores[0] == scores[1]


def _is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False
