"""Malformed requests to a server: none is a 500 or a hang, and an honest request is answered as before."""

from __future__ import annotations

import logging
import random
import re
import socket
import time

import pytest
from fuzz.cases import cases
from fuzz.http_requests import malformed
from patience import PATIENCE
from serving.serving import NAME, TOKEN, Server, running, served

HANG = PATIENCE
COST = 5.0  # seconds of processor time, of client and server together
QUIET = 0.1  # seconds without another byte after which an answer is taken to be complete
SHORT = ("serve.header_timeout=0.3", "serve.body_timeout=0.3", "serve.max_tokens=4", "serve.max_samples=4")


@pytest.fixture(scope="module")
def server(tiny):
    folder = served(tiny)
    with running(folder, *SHORT, f"serve.weights_folder={folder}") as started:
        yield started


def _exchange(server: Server, data: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes or is quiet; b"" only if it closes."""
    host, port = server.address.removeprefix("http://").split(":")
    answer, until = b"", time.monotonic() + HANG
    with socket.create_connection((host, int(port))) as client:
        try:
            client.settimeout(HANG)
            client.sendall(data)
            while time.monotonic() < until:
                client.settimeout(QUIET if answer else HANG)
                received = client.recv(1 << 20)
                if not received:
                    return answer
                answer += received
        except TimeoutError:
            if answer:
                return answer
        except ConnectionError:  # refused before all was sent
            return answer
    raise AssertionError(f"no end after {HANG} s")


def _honest(server: Server) -> str:
    answer = server.complete(max_tokens=4, temperature=0)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def test_malformed_requests(server, caplog):
    before = _honest(server)
    statuses: dict[int, int] = {}
    with caplog.at_level(logging.ERROR):
        for seed in range(cases(60, 1000)):
            data = malformed(random.Random(seed), NAME, TOKEN)
            used = time.process_time()
            answer = _exchange(server, data)
            assert time.process_time() - used < COST, (seed, data[:500])
            codes = [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]
            assert 500 not in codes, (seed, data[:500], answer[:500])
            assert b"Traceback" not in answer, seed
            for code in codes or [0]:
                statuses[code] = statuses.get(code, 0) + 1
            if seed % 100 == 99:
                assert _honest(server) == before
    assert [record.getMessage() for record in caplog.records] == []
    assert _honest(server) == before
    assert server.idle()
    assert {200, 400} <= statuses.keys(), statuses  # valid ones are among them, or nothing behind the parser was tried
    print(f"answers by status (0: closed without one): {dict(sorted(statuses.items()))}")
