"""Sandbox Fusion's API: whet's server, whet's client, and the forms of both."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from whet.errors import UserError
from whet.sandbox.limits import Limits
from whet.sandbox.remote import RemoteError, RemoteSandbox, read_answer
from whet.serving import fusion_command

TOKEN = "a-token-for-tests-0123456789"
_START = "import sys; from whet.serving.fusion_command import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in a process of its own."""
    command = [sys.executable, "-c", _START, "--port", "0", "--workers", "2", "--timeout", "5"]
    environment = {**os.environ, "WHET_SANDBOX_TOKEN": TOKEN}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert server.stdout is not None
    said = ""
    while "serving at" not in said:
        line = server.stdout.readline()
        if not line:
            pytest.skip(f"the server ended: {said}") if "cannot be confined" in said else pytest.fail(said)
        said += line
    found = re.search(r"http://[\d.]+:\d+", said)
    assert found
    assert TOKEN not in said
    yield found[0]
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0


def post(address: str, body: Any, token: str = TOKEN, **headers: str) -> tuple[int, Any]:
    """Status and answer of a request."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/run_code", content, {"Authorization": f"Bearer {token}", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_program_is_run_as_sandbox_fusion_answers(address: str) -> None:
    status, answer = post(address, {"code": "print(input())", "language": "python", "stdin": "x", "unknown": 1})
    assert status == 200
    assert answer["status"] == "Success"
    assert answer["compile_result"] is None
    assert answer["run_result"]["stdout"] == "x\n"
    assert answer["run_result"]["return_code"] == 0
    _, failed = post(address, {"code": "1 / 0", "language": "python"})
    assert failed["status"] == "Failed"
    assert failed["run_result"]["return_code"] == 1
    _, late = post(
        address, {"code": "print(1, flush=True)\nwhile True: pass", "language": "python", "run_timeout": "0.5"}
    )
    assert late["run_result"]["status"] == "TimeLimitExceeded"
    assert late["run_result"]["return_code"] is None
    assert late["run_result"]["stdout"] == "1\n"


def test_nobody_without_the_token_is_answered(address: str) -> None:
    order = {"code": "print(1)", "language": "python"}
    assert post(address, order, token="another-token-0123456789")[0] == 401
    assert post(address, order, Host="evil.example")[0] == 403
    assert post(address, order, Origin="http://evil.example")[0] == 403


@pytest.mark.parametrize(
    "order",
    [
        {"language": "python"},
        {"code": 1, "language": "python"},
        {"code": "1", "language": "cobol"},
        {"code": "1", "language": "python", "run_timeout": "soon"},
        {"code": "1", "language": "python", "memory_limit_MB": True},
        {"code": "1", "language": "python", "files": {"../x": ""}},
        {"code": "1", "language": "python", "files": {"x": "no base64!"}},
        {"code": "1", "language": "python", "fetch_files": ["../../etc/passwd"]},
        {"code": "1", "language": "python", "stdin": 5},
        [],
    ],
)
def test_bad_fields_are_named(address: str, order: Any) -> None:
    status, answer = post(address, order)
    assert status == 422
    assert answer["detail"][0]["msg"]


def test_bodies_that_are_no_json_or_too_large(address: str) -> None:
    assert post(address, b"{")[0] == 422
    assert post(address, b"[" * 100_000)[0] == 422
    assert post(address, b" " * (17 << 20))[0] == 413


def test_the_client_reads_what_the_server_says(address: str) -> None:
    with RemoteSandbox(address, Limits(timeout=3), TOKEN) as remote:
        assert remote.run("print(open('a').read() + input())", "!", files={"a": b"hi"}).stdout == "hi!\n"
        assert remote.run("import sys; sys.exit(3)").exit_code == 3
        assert remote.run("while True: pass", limits=Limits(timeout=0.3)).status == "timeout"
        assert remote.run("import os; os.kill(os.getpid(), 11)").status == "signal"
    with pytest.raises(UserError, match="WHET_SANDBOX_TOKEN"):
        RemoteSandbox(address, token="wrong-token-0123456789").run("1")


def test_a_server_that_is_not_one() -> None:
    with pytest.raises(UserError, match=r"sandbox\.url=ftp"):
        RemoteSandbox("ftp://host")
    for answer in ({}, [], {"status": "Success", "run_result": {}}, {"status": "SandboxError", "message": "x"}):
        with pytest.raises(RemoteError):
            read_answer(answer, Limits())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "x"], "write a number"),
        (["--port", "70000"], "0 to 65535"),
        (["--ports", "1"], "no option --ports"),
        (["--port"], "needs a value"),
        (["--host", "0.0.0.0"], "--allow-remote"),
        (["--host", "0.0.0.0", "--allow-remote"], "need a token"),
        (["--timeout", "0"], "sandbox.timeout"),
    ],
)
def test_options_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    monkeypatch.delenv("WHET_SANDBOX_TOKEN", raising=False)
    with pytest.raises(UserError, match=said):
        fusion_command.run(arguments)
