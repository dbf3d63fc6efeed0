"""The command itself: what it prints, what the guide shows, signals, and bad arguments."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx2 as httpx
import pytest
from serving.serving import TOKEN, started

from whet import cli
from whet.config import load_config
from whet.config.checks.serve import check_serve
from whet.errors import UserError

GUIDE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_random_token_is_printed_and_a_signal_lets_requests_finish(folder):
    without = {"WHET_SERVE_TOKEN": ""} if "WHET_SERVE_TOKEN" in os.environ else {}
    with started(str(folder), "serve.port=0", "serve.shutdown_timeout=20", **without) as server:
        (token,) = [line.removeprefix("token: ") for line in server.lines if line.startswith("token: ")]
        assert len(token) > 30
        headers = {"Authorization": f"Bearer {token}"}
        body = {"model": server.name, "prompt": "the", "n": 32, "max_tokens": 300, "ignore_eos": True, "seed": 1}
        answers: list[httpx.Response] = []

        def ask() -> None:
            url = f"{server.address}/v1/completions"
            answers.append(httpx.post(url, json=body, headers=headers, timeout=60))

        thread = threading.Thread(target=ask)
        thread.start()
        with httpx.Client() as client:
            while client.get(f"{server.address}/health").json()["running"] == 0:
                time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        thread.join(60)
        assert server.process.wait(30) == 0
        assert answers[0].status_code == 200
        assert answers[0].json()["usage"]["completion_tokens"] == 32 * 300


@pytest.mark.slow
def test_what_does_not_finish_in_time_is_cut_with_a_note(folder):
    with started(str(folder), "serve.port=0", "serve.shutdown_timeout=0", WHET_SERVE_TOKEN=TOKEN) as server:
        assert not any(line.startswith("token") for line in server.lines), "a chosen token is not shown"
        options = {"n": 128, "max_tokens": 480, "ignore_eos": True, "stream": True}
        body = {"model": server.name, "prompt": "the"} | options
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{server.address}/v1/completions"
        with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGINT)
            rest = [line for line in lines if line]
        assert '"code":"shutting_down"' in rest[-2]
        assert rest[-1] == "data: [DONE]"
        assert server.process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no model is named"),
        (["nowhere/to/be/found"], "there is no such folder"),
        (["whet/quickstart", "serve.prot=1"], "did you mean serve.port"),
        (["whet/quickstart", "serve.port=70000"], "at most 65535"),
        (["whet/quickstart", "serve.host=0.0.0.0"], "serve.allow_remote"),
        (["whet/quickstart", "serve.host=example.org"], "serve.allow_remote"),
        (["whet/quickstart", "worker.rollout.name=hf"], "native or vllm"),
        (["whet/quickstart", "worker.actor.model.lora.rank=8"], "whet merge"),
        (["whet/quickstart", "serve.weights_folder=/nowhere"], "no such folder"),
        (["whet/quickstart", "serve.host=0.0.0.0", "serve.allow_remote=true", "serve.port=0"], "need a token"),
        (["whet/quickstart", "--port=1"], "leave out the --"),
    ],
)
def test_bad_arguments_are_said_in_a_sentence(arguments, words, capsys, monkeypatch):
    monkeypatch.delenv("WHET_SERVE_TOKEN", raising=False)
    assert cli.main(["serve", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_said_before_anything_is_loaded(folder, capsys):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli.main(["serve", str(folder), f"serve.port={taken.getsockname()[1]}"]) == 2
    assert "cannot listen there" in capsys.readouterr().err


def test_help_is_short(capsys):
    assert cli.main(["serve", "--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) < 32


def test_the_guides_commands_are_accepted():
    commands = re.findall(r"^whet serve (.+)$", GUIDE, re.MULTILINE)
    assert len(commands) >= 2
    for command in commands:
        model, *arguments = command.split()
        check_serve(load_config([f"worker.actor.model.model_path={model}", *arguments]))
    with pytest.raises(UserError):
        check_serve(load_config([]))


@pytest.mark.slow
def test_the_guides_python_and_curl_work(quickstart, tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (curl,) = re.findall(r"```bash\n(curl.*?)```", GUIDE, re.DOTALL)
    model = quickstart / "model"
    with started("whet/quickstart", "serve.port=0", WHET_SERVE_TOKEN=TOKEN) as server:
        exec(code.replace("http://127.0.0.1:8000", server.address), {"token": TOKEN})
        whole, streamed = capsys.readouterr().out.split("\n", 1)
        assert whole == f"{streamed} {whole.split()[-1]}"
        sent = curl.replace("http://127.0.0.1:8000", server.address)
        sent = sent.replace("checkpoints/whet/quickstart/global_step_40", str(model))
        done = subprocess.run(
            ["bash", "-c", sent], env=os.environ | {"WHET_SERVE_TOKEN": TOKEN}, capture_output=True, text=True
        )
        assert '"version":40' in done.stdout, done.stdout + done.stderr
