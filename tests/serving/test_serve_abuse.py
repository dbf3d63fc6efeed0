"""Clients that send nothing, too slowly or far too much, and browsers that were sent here: others are served on."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest
from patience import PATIENCE, cheaply, eventually
from serving.serving import NAME, TOKEN, Server, running

from whet.config import load_config
from whet.config.checks.serve import check_serve
from whet.errors import UserError
from whet.serving.hosts import Hosts

SHORT = ("serve.header_timeout=0.8", "serve.write_timeout=0.8", "serve.max_concurrent=2", "serve.max_queued=2")


@pytest.fixture(scope="module")
def strict(folder):
    """A server with short timeouts and room for 196 connections."""
    with running(folder, *SHORT) as server:
        yield server


def _connect(server: Server, small: bool = False) -> socket.socket:
    host, port = server.address.removeprefix("http://").split(":")
    client = socket.socket()
    if small:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(PATIENCE)
    client.connect((host, int(port)))
    return client


def _head(method: str = "GET", path: str = "/health", *lines: str) -> bytes:
    fixed = (f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}")
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


def _is_closed(client: socket.socket) -> bool:
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_silent_connections_keep_nobody_out_and_are_closed(strict):
    silent = [_connect(strict) for _ in range(260)]
    with cheaply(5):
        assert strict.complete(max_tokens=1).status_code == 200
    assert all(_is_closed(each) for each in silent)
    for each in silent:
        each.close()


@pytest.mark.parametrize("answered", [False, True])
def test_a_head_that_comes_byte_by_byte_is_not_waited_for(strict, answered):
    with _connect(strict) as client:
        if answered:
            client.sendall(_head())
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        client.settimeout(0.1)
        began, closed = time.monotonic(), False
        while not closed and time.monotonic() - began < PATIENCE:
            try:
                client.sendall(b"G")
                closed = client.recv(1) == b""
            except TimeoutError:
                pass
            except ConnectionError:
                closed = True
        assert closed


def test_a_body_that_nobody_wants_does_not_keep_a_connection_open(strict):
    with _connect(strict) as client:
        client.sendall(_head("GET", "/health", "Transfer-Encoding: chunked"))
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        began, closed = time.monotonic(), False
        while not closed and time.monotonic() - began < PATIENCE:
            try:
                client.sendall(b"1\r\nx\r\n")
            except ConnectionError:
                closed = True
            time.sleep(0.05)
        assert closed


def test_a_client_that_stops_reading_holds_up_neither_weights_nor_others(strict, folder):
    options = {"prompt": ["the"] * 16, "n": 4, "max_tokens": 60, "ignore_eos": True, "stream": True, "logprobs": 20}
    body = json.dumps({"model": NAME} | options).encode()
    with _connect(strict, small=True) as client, ThreadPoolExecutor(1) as pool:
        client.sendall(_head("POST", "/v1/completions", f"Content-Length: {len(body)}") + body)
        while not strict.service.gate.running:
            time.sleep(0.01)
        began = time.monotonic()
        update = pool.submit(strict.post, "/v1/weights", {"path": str(folder)})
        assert strict.complete(max_tokens=1).status_code == 200
        assert update.result().status_code == 200
        assert time.monotonic() - began < PATIENCE
        assert eventually(lambda: not strict.service.gate._tickets), "it is dropped"
    assert strict.idle()


@pytest.mark.parametrize(
    ("path", "made"),  # bodies of megabytes, made when they are sent
    [
        ("/v1/completions", lambda: b'{"model":"tiny","prompt":[' + b"[]," * 2_000_000 + b"[]]}"),
        ("/v1/completions", lambda: b'{"model":"tiny","prompt":[' + b"1," * 3_000_000 + b"1]}"),
        ("/v1/completions", lambda: b'{"model":"tiny",' + b",".join(b'"%d":1' % n for n in range(500_000)) + b"}"),
        ("/v1/chat/completions", lambda: b'{"model":"tiny","messages":[' + b'{"role":1},' * 500_000 + b"{}]}"),
        ("/v1/completions", lambda: json.dumps({"model": NAME, "prompt": "the answer is " * 500_000}).encode()),
        ("/v1/completions", lambda: json.dumps({"model": NAME, "prompt": "[{,:" * 1_500_000}).encode()),
        ("/v1/completions", lambda: json.dumps({"model": NAME, "prompt": '\\"' * 1_000_000}).encode()),
        ("/v1/completions", lambda: json.dumps({"model": "x" * 7_000_000, "prompt": "a"}).encode()),
        ("/v1/completions", lambda: json.dumps({"model": NAME, "prompt": "a", "x" * 7_000_000: 1}).encode()),
    ],
    ids=["lists", "ids", "fields", "messages", "text", "signs", "escapes", "model", "field name"],
)
def test_what_would_cost_much_to_read_is_refused_quickly_and_shortly(server, path, made):
    body = made()
    with cheaply(5):
        answer = server.post(path, body)
    assert answer.status_code == 400
    assert len(answer.content) < 2000


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"prompt": ["a"] * 1024, "n": 128}, "max_answer_tokens"),
        ({"n": 128, "max_tokens": 500, "logprobs": 20}, "max_answer_tokens"),
        ({"n": 10**30}, "max_samples"),
        ({"best_of": 10**6}, "best_of"),
        ({"max_tokens": 10**5000}, "number"),
        ({"stop": ["a" * 1000]}, "stop"),
        ({"stop": ["a"] * 1000}, "stop"),
        ({"logit_bias": {str(n): 1 for n in range(1000)}}, "logit_bias"),
    ],
)
def test_enormous_wishes_are_refused(server, options, field):
    if "max_tokens" in options and options["max_tokens"] > 10**9:
        answer = server.post("/v1/completions", b'{"model":"tiny","prompt":"a","max_tokens":' + b"9" * 5000 + b"}")
    else:
        answer = server.complete(**options)
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]


def test_messages_are_counted_before_the_template_sees_them(server):
    answer = server.chat(messages=[{"role": "user", "content": ""}] * 5000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("path", ["/health", "/openapi.json", "/v1/models"])
@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Host", "evil.example", 403),
        ("Host", "localhost.evil.example", 403),
        ("Host", "127.0.0.1.nip.io:8000", 403),
        ("Host", "0.0.0.0", 403),
        ("Host", "localhost@evil.example", 403),
        ("Host", "", 403),
        ("Host", "LocalHost:9", 200),
        ("Host", "[::1]:8000", 200),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", "http://localhost.evil.example", 403),
        ("Origin", "http://localhost:3000", 200),
    ],
)
def test_requests_that_a_page_sent_are_refused(server, path, header, value, status):
    answer = httpx.get(server.address + path, headers=server.headers | {header: value}, timeout=PATIENCE)
    assert answer.status_code == status
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("host", "allowed", "headers", "passes"),
    [
        ("0.0.0.0", [], {"host": "gpu.example:80"}, True),
        ("0.0.0.0", [], {"host": "gpu.example:80", "origin": "https://gpu.example"}, True),
        ("0.0.0.0", [], {"host": "gpu.example", "origin": "https://evil.example"}, False),
        ("0.0.0.0", ["gpu.example"], {"host": "GPU.example"}, True),
        ("0.0.0.0", ["gpu.example"], {"host": "other.example"}, False),
        ("127.0.0.1", ["gpu.example"], {"host": "gpu.example", "origin": "http://gpu.example:3000"}, True),
        ("127.0.0.1", ["*"], {"host": "any.example", "origin": "null"}, True),
        ("::1", [], {"host": "[::1]"}, True),
        ("127.0.0.1", [], {}, True),
    ],
)
def test_names_can_be_allowed(host, allowed, headers, passes):
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert (Hosts(host, allowed).check({"headers": raw}) is None) is passes


@pytest.mark.parametrize("name", ["http://a", "a:80", ""])
def test_allowed_hosts_are_names(name):
    with pytest.raises(UserError, match="allowed_hosts"):
        check_serve(load_config(["worker.actor.model.model_path=whet/quickstart", f"serve.allowed_hosts=['{name}']"]))
