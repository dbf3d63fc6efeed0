"""A real vLLM behind `whet serve`, asked by the official client, beside the native engine on the same model."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
import torch
from serving.serving import NAME, TOKEN, Server, running, started
from transformers import AutoModelForCausalLM

if TYPE_CHECKING:
    import openai  # takes seconds: imported by the tests that are run

psutil = pytest.importorskip("psutil")
ENGINE = ("worker.rollout.name=vllm", "worker.rollout.enforce_eager=true", "worker.rollout.max_num_seqs=16")
LONG = {"max_tokens": 450, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def vllm(vllm_python: str, wide_quickstart: Path) -> Iterator[Server]:
    torch.set_num_threads(1)
    with running(wide_quickstart, *ENGINE, f"worker.rollout.python={vllm_python}") as server:
        yield server


@pytest.fixture(scope="module")
def native(vllm_python: str, quickstart: Path) -> Iterator[Server]:
    with running(quickstart / "model", "worker.rollout.max_num_seqs=16") as server:
        yield server


@pytest.fixture(scope="module")
def client(vllm: Server) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=f"{vllm.address}/v1", api_key=TOKEN, max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def problems(quickstart: Path) -> list[str]:
    lines = (quickstart / "test.jsonl").read_text().splitlines()[:12]
    return [json.loads(line)["problem"] for line in lines]


@pytest.fixture(scope="module")
def other(wide_quickstart: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other weights of the same model."""
    folder = tmp_path_factory.mktemp("other")
    shutil.copytree(wide_quickstart, folder, dirs_exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(wide_quickstart, dtype=torch.float32)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(model.config, dtype=torch.float32).save_pretrained(folder)
    return folder


def chat(text: str, **options: Any) -> dict[str, Any]:
    return {"model": NAME, "messages": [{"role": "user", "content": text}], "max_tokens": 24} | options


def put_together(events: Any, count: int) -> tuple[list[str], list[list[int]], list[list[float]], int]:
    """Texts, token ids, log-probs and the number of events of a stream of completions."""
    texts, ids, log_probs, heard = [""] * count, [[] for _ in range(count)], [[] for _ in range(count)], 0
    for event in events:
        for choice in event.choices:
            heard += 1
            texts[choice.index] += choice.text
            ids[choice.index] += choice.token_ids
            log_probs[choice.index] += choice.logprobs.token_logprobs
    return texts, ids, log_probs, heard


def working(server: Server) -> bool:
    """Whether vLLM's process computes."""
    process = psutil.Process(server.service.backend.engine.process.pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(0.5)
    return sum(process.cpu_times()[:2]) - before > 0.05  # an idle one needs none at all


def test_greedy_chats_are_the_native_engines(client, native, problems):
    import openai

    theirs = openai.OpenAI(base_url=f"{native.address}/v1", api_key=TOKEN, max_retries=0)
    for text in problems:
        options = chat(text, temperature=0, logprobs=True)
        one, two = (each.chat.completions.create(**options) for each in (client, theirs))
        assert one.choices[0].message == two.choices[0].message
        assert one.choices[0].finish_reason == two.choices[0].finish_reason
        assert one.usage == two.usage
        pairs = zip(one.choices[0].logprobs.content, two.choices[0].logprobs.content, strict=True)
        assert all(a.token == b.token and a.logprob == pytest.approx(b.logprob, abs=1e-3) for a, b in pairs)


def test_a_stream_comes_piece_by_piece_and_adds_up_to_the_whole(client):
    options = {"model": NAME, "prompt": [[5, 40, 42], [40, 41]], "n": 2, "seed": 7, "logprobs": 0}
    options |= {"max_tokens": 60, "extra_body": {"ignore_eos": True, "return_token_ids": True}}
    whole = client.completions.create(**options)
    texts, ids, log_probs, heard = put_together(client.completions.create(**options, stream=True), 4)
    assert heard > 4 * 4  # a choice in one piece would make four events
    assert texts == [choice.text for choice in whole.choices]
    assert ids == [choice.token_ids for choice in whole.choices]
    assert whole.choices[2].prompt_token_ids == [40, 41]
    for choice, streamed in zip(whole.choices, log_probs, strict=True):
        assert len(choice.token_ids) == 60
        assert streamed == pytest.approx(choice.logprobs.token_logprobs, abs=1e-4)


def test_the_first_piece_is_there_long_before_the_last(client):
    began = time.monotonic()
    stream = client.completions.create(model=NAME, prompt="sort: 3", stream=True, **LONG)
    next(iter(stream))
    first = time.monotonic() - began
    assert sum(1 for _ in stream) > 20
    assert first < (time.monotonic() - began) / 3


def test_log_probs_are_those_of_a_full_pass(client, wide_quickstart):
    options = {"model": NAME, "prompt": [5, 40, 41], "temperature": 0.7, "seed": 3, "logprobs": 0, "max_tokens": 40}
    answer = client.completions.create(**options, extra_body={"return_token_ids": True, "ignore_eos": True})
    (choice,) = answer.choices
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(wide_quickstart, dtype=torch.float32)
        logits = model(torch.tensor([[5, 40, 41, *choice.token_ids]])).logits[0, 2:-1]
    expected = (logits / 0.7).log_softmax(-1).gather(1, torch.tensor(choice.token_ids).unsqueeze(1)).squeeze(1)
    assert choice.logprobs.token_logprobs == pytest.approx(expected.tolist(), abs=1e-3)


def test_seeds(client):
    def ask(seed: int) -> list[str]:
        answer = client.chat.completions.create(**chat("sort: 5 4 3", seed=seed, n=3, temperature=1.5))
        return [choice.message.content for choice in answer.choices]

    assert ask(1) == ask(1)
    assert ask(1) != ask(2)
    assert len(set(ask(1))) > 1
    drawn = client.chat.completions.create(**chat("sort: 5 4 3", temperature=1.5))
    again = client.chat.completions.create(**chat("sort: 5 4 3", temperature=1.5, seed=drawn.whet["seed"]))
    assert again.choices[0].message == drawn.choices[0].message


def test_responses_end_where_the_native_engine_ends_them(client, vllm, native, problems):
    import openai

    plain = {"prompt": problems[0], "temperature": 0, "max_tokens": 40, "ignore_eos": True, "return_token_ids": True}
    (written,) = native.complete(**plain).json()["choices"]
    stop, last = written["text"].strip()[2:4], written["token_ids"][4]
    assert stop
    for ends in ({"stop": [stop]}, {"stop": [stop], "include_stop_str_in_output": True}, {"stop_token_ids": [last]}):
        answers = [server.complete(**plain, **ends).json()["choices"] for server in (vllm, native)]
        assert answers[0] == answers[1]
        assert answers[0][0]["finish_reason"] == "stop"
        events = vllm.events("/v1/completions", **plain, **ends)[:-1]
        assert "".join(event["choices"][0]["text"] for event in events) == answers[0][0]["text"]
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
    with pytest.raises(openai.BadRequestError, match="top_logprobs"):
        client.chat.completions.create(**chat("sort: 1", logprobs=True, top_logprobs=2))


def test_many_clients_at_once(vllm, problems):
    import openai

    async def one(client: openai.AsyncOpenAI, text: str) -> str:
        stream = await client.chat.completions.create(**chat(text, seed=5), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{vllm.address}/v1", api_key=TOKEN, max_retries=0) as client:
            return await asyncio.gather(*(one(client, text) for text in problems * 3))

    streamed = asyncio.run(all_())
    bodies = [chat(text, seed=5) for text in problems]
    whole = [vllm.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"] for body in bodies]
    assert streamed == whole * 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_vllm(vllm, stream):
    body = {"model": NAME, "prompt": "sort: 3", "n": 64, "max_tokens": 450, "ignore_eos": True, "stream": stream}
    with httpx.Client(base_url=vllm.address, headers=vllm.headers) as leaving:
        if stream:
            with leaving.stream("POST", "/v1/completions", json=body, timeout=60) as answer:
                lines = answer.iter_lines()
                next(lines)
                assert working(vllm)
        else:
            with pytest.raises(httpx.TimeoutException):
                leaving.post("/v1/completions", json=body, timeout=1.0)
    until = time.monotonic() + 2
    while vllm.service.gate.running and time.monotonic() < until:
        time.sleep(0.02)
    assert not vllm.service.gate.running
    assert not working(vllm)


def test_weights_change_between_answers(client, vllm, other, wide_quickstart):
    import openai

    greedy = {"model": NAME, "prompt": "sort: 3 1 2", "temperature": 0}
    with running(other) as reference:
        expected = reference.complete(prompt=greedy["prompt"], temperature=0, max_tokens=20).json()["choices"][0][
            "text"
        ]
    before = client.completions.create(**greedy, max_tokens=20)
    with ThreadPoolExecutor(1) as pool:
        events = iter(client.completions.create(**greedy, stream=True, **LONG))
        head = next(events).choices[0].text
        update = pool.submit(vllm.post, "/v1/weights", {"path": str(other), "version": 7})
        streamed = head + "".join(event.choices[0].text for event in events)  # the update waits for it
        assert update.result().json()["version"] == 7, update.result().text
    after = client.completions.create(**greedy, max_tokens=20)
    assert (before.whet["version"], after.whet["version"]) == (0, 7)
    assert after.system_fingerprint.endswith("-v7")
    assert after.choices[0].text == expected != before.choices[0].text

    cut = client.completions.create(**greedy, n=16, stream=True, **LONG)
    next(iter(cut))
    back = vllm.post("/v1/weights", {"path": str(wide_quickstart), "in_flight": "cut"})
    assert back.json()["version"] == 8, back.text
    with pytest.raises(openai.APIError, match="weights were replaced"):
        list(cut)
    assert client.completions.create(**greedy, max_tokens=20).choices[0].text == before.choices[0].text
    assert client.completions.create(**greedy, **LONG).choices[0].text == streamed


@pytest.fixture
def command(vllm_python: str, wide_quickstart: Path) -> tuple[str, ...]:
    return (str(wide_quickstart), "serve.port=0", *ENGINE, f"worker.rollout.python={vllm_python}")


def ask_long(server: Any, **options: Any) -> Any:
    body = {"model": server.name, "prompt": "sort: 3", "n": 8, "max_tokens": 450, "ignore_eos": True} | options
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.stream("POST", f"{server.address}/v1/completions", json=body, headers=headers, timeout=60)


def test_a_signal_lets_streams_finish_and_leaves_no_process(command):
    with started(*command, "serve.shutdown_timeout=30", WHET_SERVE_TOKEN=TOKEN) as server:
        family = psutil.Process(server.process.pid).children(recursive=True)
        assert any("whet_vllm_child.py" in " ".join(each.cmdline()) for each in family)
        with ask_long(server, stream=True) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert sum('"finish_reason":"length"' in line for line in rest) == 8
        assert server.process.wait(30) == 0
        assert not any(each.is_running() for each in family)


@pytest.mark.parametrize("when", ["idle", "whole", "streamed"])
def test_a_vllm_that_dies_is_an_error_and_the_end_of_the_server(command, when):
    with started(*command, WHET_SERVE_TOKEN=TOKEN) as server:
        family = psutil.Process(server.process.pid).children(recursive=True)
        (child,) = [each for each in family if "whet_vllm_child.py" in " ".join(each.cmdline())]
        if when == "idle":
            os.kill(child.pid, signal.SIGKILL)
        elif when == "whole":
            threading.Timer(0.5, os.kill, (child.pid, signal.SIGKILL)).start()
            with ask_long(server) as answer:
                said = answer.read()
            assert answer.status_code == 500
            assert json.loads(said)["error"]["code"] == "engine_failed"
        else:
            with ask_long(server, stream=True) as answer:
                lines = answer.iter_lines()
                next(lines)
                os.kill(child.pid, signal.SIGKILL)
                rest = [line for line in lines if line]
            assert '"code":"engine_failed"' in rest[-2]
            assert rest[-1] == "data: [DONE]"
        assert server.process.wait(30) == 2
        assert f"runs vLLM (pid {child.pid}) was killed by SIGKILL" in server.process.stdout.read()
        assert not any(each.is_running() for each in family)


def test_heads_that_vllm_cannot_run_are_said_before_it_serves(vllm_python, quickstart, capsys):
    from whet import cli

    model = str(quickstart / "model")
    assert cli.main(["serve", model, "serve.port=0", *ENGINE, f"worker.rollout.python={vllm_python}"]) == 2
    assert "attention heads of 16 elements" in capsys.readouterr().err
