"""`serve.engine_process`: the same answers as from an engine in the server's own process, and what its end does."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE, eventually
from serving.serving import Server, running, served, started
from tiny_models import MakeTiny

from whet.errors import UserError
from whet.rollout.engine import Piece, SamplingParams
from whet.serving.process.backend import ProcessBackend, _Incoming
from whet.serving.process.boot import end_with
from whet.serving.process.child import EngineHost, Outlet
from whet.serving.process.wire import Add, Addition, Drop, Failed, Grown, Inbound, Up, messages, send
from whet.types import Prompt

COMPLETIONS = "/v1/completions"
GREEDY = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def folder(tiny: MakeTiny) -> Path:
    return served(tiny)


@pytest.fixture(scope="module")
def apart(folder: Path) -> Iterator[Server]:
    with running(folder, "serve.engine_process=true") as server:
        assert isinstance(server.service.backend, ProcessBackend)
        yield server


def test_answers_are_those_of_an_engine_in_this_process(folder: Path, apart: Server) -> None:
    asked: dict[str, Any] = {"n": 3, "max_tokens": 40, "seed": 2, "ignore_eos": True, "logprobs": 2, "stop": ["ab"]}
    with running(folder) as here:
        expected, streamed = here.complete(**asked).json(), here.events(COMPLETIONS, **asked)
    answer = apart.complete(**asked).json()
    assert answer["choices"] == expected["choices"]
    assert answer["usage"] == expected["usage"]
    texts = [_texts(events) for events in (streamed, apart.events(COMPLETIONS, **asked))]
    assert texts[0] == texts[1] == {choice["index"]: choice["text"] for choice in expected["choices"]}


def _texts(events: list[Any]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for event in events[:-1]:
        for choice in event["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


def test_a_prompt_that_cannot_be_sampled_is_refused_and_the_next_is_not(apart: Server) -> None:
    assert apart.complete(prompt=[10**6]).status_code == 400
    assert apart.complete(**GREEDY).status_code == 200


def test_weights_are_replaced_there(apart: Server, tiny: MakeTiny) -> None:
    other, wrong = served(tiny, seed=1), served(tiny, num_hidden_layers=1)
    before = apart.complete(**GREEDY).json()
    refused = apart.post("/v1/weights", {"path": str(wrong)})
    assert refused.status_code == 400
    assert "not weights of the same model" in refused.text
    assert apart.complete(**GREEDY).json()["choices"] == before["choices"]
    assert apart.post("/v1/weights", {"path": str(other), "version": 5}).json()["version"] == 5
    after = apart.complete(**GREEDY).json()
    assert (before["whet"]["version"], after["whet"]["version"]) == (0, 5)
    assert before["choices"][0]["token_ids"] != after["choices"][0]["token_ids"]


def test_an_update_that_was_given_up_does_not_answer_the_next(apart: Server, tiny: MakeTiny) -> None:
    backend, given_up, wanted = apart.service.backend, served(tiny, seed=2), served(tiny, seed=3)

    async def update() -> None:
        first = asyncio.create_task(backend.read_weights(given_up))
        await asyncio.sleep(0)  # it is asked for
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        read = await backend.read_weights(wanted)
        await backend.use_weights(read, 9)
        backend.drop_weights(read)

    asyncio.run_coroutine_threadsafe(update(), apart.loop).result(PATIENCE)
    with running(wanted) as here:
        expected = here.complete(**GREEDY).json()
    answer = apart.complete(**GREEDY).json()
    assert answer["whet"]["version"] == 9
    assert answer["choices"][0]["token_ids"] == expected["choices"][0]["token_ids"]


def test_responses_that_nobody_reads_are_dropped(folder: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, running(folder) as here:
        host = EngineHost(here.service.backend, Outlet(theirs))  # type: ignore[arg-type]
        params = SamplingParams(n=64, max_tokens=400, ignore_eos=True)
        host.take(Add(3, [Prompt("a", [9, 40], "")], params, [0], True))
        first = next(messages(ours, Inbound(bytearray())))
        assert isinstance(first, Grown)
        assert {each.number for each in first.additions} == {3}
        host.take(Drop(3))
        assert here.idle()


def test_other_prompts_of_a_request_that_failed_are_dropped(folder: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, running(folder) as here:
        backend: Any = here.service.backend
        host, params = EngineHost(backend, Outlet(theirs)), SamplingParams(n=32, max_tokens=400, ignore_eos=True)
        with backend.engine.pause():
            host.take(Add(3, [Prompt("a", [9, 40], ""), Prompt("b", [9, 41], "")], params, [0, 32], True))
            refused, other = host._feeds[3].requests
            refused.error = UserError("there is no memory left")
        (failed,) = list(itertools.islice(messages(ours, Inbound(bytearray())), 1))
        assert failed == Failed(3, "there is no memory left", True)
        assert here.idle()
        assert {each.finish for each in other.sequences} == {"abort"}


def test_the_process_ends_as_soon_as_its_server_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    for leave in (socket.socket.close, lambda side: side.shutdown(socket.SHUT_RDWR)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            watch = threading.Thread(target=end_with, args=(theirs,))
            watch.start()
            ours.sendall(b"a message that nobody has read yet")
            leave(ours)
            watch.join(PATIENCE)
    assert ended == [0, 0]


@pytest.mark.slow
def test_the_engine_ends_with_its_server(folder: Path) -> None:
    with started(str(folder), "serve.port=0", "serve.engine_process=true") as server:
        (child,) = _children(server.process.pid)
        server.process.kill()
        assert eventually(lambda: not Path(f"/proc/{child}").exists())


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_pieces_that_nobody_has_taken_are_one() -> None:
    async def taken() -> list[Piece]:
        incoming = _Incoming()
        incoming.add(Addition(0, 0, 1, [4], [-1.0], [], None))
        incoming.add(Addition(0, 0, 0, [7], [-0.5], [], None))
        incoming.add(Addition(0, 0, 1, [5, 6], [-2.0, -3.0], [], "stop"))
        return await incoming.pieces()

    assert asyncio.run(taken()) == [
        Piece(0, 1, [4, 5, 6], [-1.0, -2.0, -3.0], [], "stop"),
        Piece(0, 0, [7], [-0.5], [], None),
    ]


def test_messages_come_whole_however_they_are_cut() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for number in range(3):
            send(ours, Up(number, True, 7))
        data = theirs.recv(1 << 16)
        ours.shutdown(socket.SHUT_WR)
        assert list(messages(theirs, Inbound(bytearray()))) == []
    inbound = Inbound(bytearray())
    found = [message for at in range(len(data)) for message in inbound.take(data[at : at + 1])]
    assert found == [Up(number, True, 7) for number in range(3)]


def test_requests_fail_and_the_server_knows_why_when_the_engine_was_killed(apart: Server, folder: Path) -> None:
    backend = apart.service.backend
    assert isinstance(backend, ProcessBackend)
    backend.process.kill()
    assert eventually(lambda: apart.service.failure is not None)
    assert "was killed by SIGKILL" in str(apart.service.failure)
    answer = apart.complete(**GREEDY)
    update = apart.post("/v1/weights", {"path": str(folder)})
    for each in (answer, update):
        assert (each.status_code, each.json()["error"]["code"]) == (500, "engine_failed")
