"""Who gets in, how much at once, and what becomes of those who leave, wait too long or send too much."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest
from patience import PATIENCE, eventually
from serving.serving import NAME, TOKEN, running

from whet.serving.errors import ApiError
from whet.serving.gate import Gate

LONG = {"max_tokens": 500, "ignore_eos": True}


def _head(length: int) -> bytes:
    lines = [
        "POST /v1/completions HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {TOKEN}",
        f"Content-Length: {length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(
    "header",
    [None, "Bearer", "Bearer wrong", TOKEN, f"bearer {TOKEN}", f"Bearer {TOKEN}x", f"Basic {TOKEN}"],
)
def test_without_the_token_nothing_is_told(server, header):
    headers = {} if header is None else {"Authorization": header}
    for method, path in (
        ("GET", "/v1/models"),
        ("POST", "/v1/completions"),
        ("GET", "/metrics"),
        ("POST", "/v1/weights"),
    ):
        answer = httpx.request(method, server.address + path, headers=headers, content=b"{}", timeout=PATIENCE)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_what_does_not_exist_is_said_in_the_same_form(server):
    assert server.get("/v1/nothing").status_code == 404
    wrong = server.get("/v1/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert "error" in wrong.json()


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_of_10_mb_is_refused_and_the_next_request_served(server, declared):
    body = json.dumps({"model": NAME, "prompt": "a" * 10_000_000}).encode()
    chunks = body if declared else (body[at : at + 65536] for at in range(0, len(body), 65536))
    answer = httpx.post(server.address + "/v1/completions", content=chunks, headers=server.headers, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert server.complete(max_tokens=1).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(folder):
    with running(folder, "serve.body_timeout=0.3") as server:
        with socket.create_connection(server.address.removeprefix("http://").split(":")) as client:
            client.sendall(_head(99) + b"{")
            client.settimeout(PATIENCE)
            assert client.recv(4096).startswith(b"HTTP/1.1 408")
        assert server.service.gate.waiting == 0


def test_responses_can_be_kept_short(folder):
    with running(folder, "serve.max_tokens=3") as server:
        for wanted in (None, 2, 100):
            answer = server.complete(max_tokens=wanted, ignore_eos=True).json()
            assert answer["usage"]["completion_tokens"] == min(wanted or 3, 3)
            assert answer["choices"][0]["finish_reason"] == "length"


def test_too_many_are_told_to_come_back(folder, monkeypatch):
    with (
        running(folder, "serve.max_concurrent=2", "serve.max_queued=1") as server,
        ThreadPoolExecutor(12) as pool,
    ):
        server.delay(monkeypatch, 0.01)  # a response takes a second: the others come in the meantime
        answers = list(pool.map(lambda seed: server.complete(max_tokens=120, ignore_eos=True), range(12)))
        refused = [answer for answer in answers if answer.status_code == 429]
        assert {answer.status_code for answer in answers} == {200, 429}
        assert len(refused) >= 4
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert server.idle()
        assert server.complete(max_tokens=1).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_is_not_written_for(server, stream):
    body = json.dumps({"model": NAME, "prompt": "the", "stream": stream, "n": 64, **LONG}).encode()
    before = server.service.metrics._counters["whet_clients_gone_total"][()]
    clients = [socket.create_connection(server.address.removeprefix("http://").split(":")) for _ in range(3)]
    for client in clients:
        client.sendall(_head(len(body)) + body)
    scheduler = server.service.backend.engine._scheduler
    assert eventually(lambda: server.service.gate.running == 3 and scheduler.running)
    written = list(scheduler.running)
    for client in clients:
        client.close()
    assert server.idle()
    assert all(len(sequence.ids) < LONG["max_tokens"] for sequence in written)
    assert server.service.metrics._counters["whet_clients_gone_total"][()] == before + 3


def test_a_request_that_takes_too_long_ends_with_a_note(folder, monkeypatch):
    with running(folder, "serve.request_timeout=1.5") as server:
        server.delay(monkeypatch)
        many = {"n": 8, **LONG}
        whole = server.complete(**many)
        assert (whole.status_code, whole.json()["error"]["code"]) == (504, "timeout")
        *_, note, done = server.events("/v1/completions", **many)
        assert (note["error"]["code"], done) == ("timeout", "[DONE]")
        assert server.idle()


def test_a_failing_engine_answers_500_and_goes_on(server, monkeypatch):
    runner = server.service.backend.engine._runner
    with monkeypatch.context() as patch:
        patch.setattr(runner, "decode", lambda running: 1 / 0)
        assert server.complete(max_tokens=5, ignore_eos=True).status_code == 500
    assert server.complete(max_tokens=5).status_code == 200


def test_health_answers_while_the_engine_works(server):
    with ThreadPoolExecutor(1) as pool, httpx.Client() as client:
        work = pool.submit(server.complete, n=64, max_tokens=100, ignore_eos=True)
        seen = []
        while not work.done():
            seen.append(client.get(server.address + "/health", timeout=PATIENCE).json()["running"])
    assert work.result().status_code == 200
    assert seen.count(1) >= 5


def test_the_gate_keeps_order_and_lets_nobody_in_while_alone():
    async def story() -> list[str]:
        gate, seen = Gate(concurrent=1, queued=5), []

        async def visit(name: str, stay: float) -> None:
            with gate.ticket() as ticket:
                async with gate.turn(ticket):
                    seen.append(name)
                    await asyncio.sleep(stay)

        tasks = [asyncio.create_task(visit(name, 0.02)) for name in "abc"]
        await asyncio.sleep(0.005)
        tasks[1].cancel()  # b leaves the queue
        async with gate.alone():
            seen.append("alone")
            assert gate.running == 0
            tasks.append(asyncio.create_task(visit("d", 0)))
            await asyncio.sleep(0.02)
            seen.append("done")
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (gate.running, gate.waiting) == (0, 0)
        return seen

    assert asyncio.run(asyncio.wait_for(story(), 10)) == ["a", "alone", "done", "c", "d"]


def test_a_full_gate_refuses():
    async def story() -> None:
        gate = Gate(concurrent=1, queued=0)
        with gate.ticket(), pytest.raises(ApiError, match="try again"), gate.ticket():
            pass

    asyncio.run(story())


def test_token_files(tmp_path, monkeypatch):
    from whet.errors import UserError
    from whet.serving.access import TOKEN as VARIABLE
    from whet.serving.access import read_token

    monkeypatch.delenv(VARIABLE, raising=False)
    assert read_token(None) is None
    made = read_token(tmp_path / "token")
    assert len(made) > 30
    assert read_token(tmp_path / "token") == made
    assert os.stat(tmp_path / "token").st_mode & 0o077 == 0
    (tmp_path / "short").write_text("abc\n")
    with pytest.raises(UserError, match="token_file"):
        read_token(tmp_path / "short")
    monkeypatch.setenv(VARIABLE, "x" * 20)
    assert read_token(None) == "x" * 20
