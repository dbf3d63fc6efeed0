"""What comes back: whole and streamed answers agree, with each other and with the engine."""

from __future__ import annotations

import json

import pytest
from serving.serving import NAME, TOKEN, running
from tiny_models import VOCABULARY

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.hf.engine import HFEngine
from whet.rollout.engines.openai.engine import OpenAIEngine
from whet.rollout.engines.server.client import Client
from whet.types import Prompt

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def test_the_model_is_listed(server):
    (model,) = server.get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"], model["version"]) == (NAME, 512, 0)
    assert server.get(f"/v1/models/{NAME}").json() == model
    assert server.get("/v1/models/other").status_code == 404
    assert server.get("/health").json() == {"status": "ok", "version": 0, "running": 0, "waiting": 0}


def test_tokens_are_the_engines(server):
    params = {"max_tokens": 24, "seed": 5, "n": 3, "temperature": 0.8, "top_p": 0.9, "return_token_ids": True}
    answer = server.complete(prompt=[9, 40, 41], logprobs=0, **params).json()
    engine = server.service.backend.engine
    sampling = SamplingParams(n=3, max_tokens=24, seed=5, temperature=0.8, top_p=0.9)
    expected = engine.generate([Prompt("p", [9, 40, 41], "")], sampling)
    assert [choice["token_ids"] for choice in answer["choices"]] == [sample.ids for sample in expected]
    for choice, sample in zip(answer["choices"], expected):
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(sample.log_probs, abs=1e-4)
        assert choice["finish_reason"] == sample.finish
        assert choice["prompt_token_ids"] == [9, 40, 41]
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == sum(len(sample.ids) for sample in expected)
    assert answer["whet"] == {"version": 0, "seed": 5}
    assert answer["system_fingerprint"].endswith("-v0")


def test_the_same_seed_writes_the_same_and_an_answer_names_its_seed(server):
    first = server.chat(max_tokens=16).json()
    again = server.chat(max_tokens=16, seed=first["whet"]["seed"]).json()
    other = server.chat(max_tokens=16).json()
    text = [each["choices"][0]["message"]["content"] for each in (first, again, other)]
    assert text[0] == text[1] != text[2]
    assert first["whet"]["seed"] != other["whet"]["seed"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stop", [None, ["e", "zz"], "\n"])
@pytest.mark.parametrize("tops", [None, 2])
def test_a_stream_put_together_is_the_whole_answer(server, path, stop, tops):
    options = {"max_tokens": 40, "seed": 3, "n": 4, "stop": stop, "return_token_ids": True}
    if tops is not None:
        options |= {"logprobs": True, "top_logprobs": tops} if path == CHAT else {"logprobs": tops}
    ask = server.chat if path == CHAT else server.complete
    whole = ask(**options).json()
    *events, usage, done = server.events(path, stream_options={"include_usage": True}, **options)
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    for choice in whole["choices"]:
        mine = [each["choices"][0] for each in events if each["choices"][0]["index"] == choice["index"]]
        texts = [each["delta"].get("content", "") if path == CHAT else each["text"] for each in mine]
        assert "".join(texts) == (choice["message"]["content"] if path == CHAT else choice["text"])
        assert [token for each in mine for token in each["token_ids"]] == choice["token_ids"]
        assert [each["finish_reason"] for each in mine][-1] == choice["finish_reason"]
        assert all(each["finish_reason"] is None for each in mine[:-1])
        if tops is not None and path == CHAT:
            places = [place for each in mine for place in each["logprobs"]["content"]]
            assert [p["token"] for p in places] == [p["token"] for p in choice["logprobs"]["content"]]
            assert all(len(place["top_logprobs"]) == tops for place in places)
        elif tops is not None:
            for name in ("tokens", "text_offset"):
                assert [x for each in mine for x in each["logprobs"][name]] == choice["logprobs"][name]
    assert {event["whet"]["version"] for event in events} == {0}


def test_text_ends_before_the_stop_string(server):
    free = server.complete(max_tokens=60, seed=8).json()["choices"][0]["text"]
    stop = free[10:12]
    stopped = server.complete(max_tokens=60, seed=8, stop=stop).json()["choices"][0]
    assert stopped["text"] == free[: free.index(stop)]
    assert stopped["finish_reason"] == "stop"
    kept = server.complete(max_tokens=60, seed=8, stop=stop, include_stop_str_in_output=True).json()["choices"][0]
    assert kept["text"] == free[: free.index(stop) + len(stop)]


def test_a_token_may_end_a_response(server):
    ids = server.complete(max_tokens=30, seed=2, return_token_ids=True).json()["choices"][0]["token_ids"]
    ended = server.complete(max_tokens=30, seed=2, return_token_ids=True, stop_token_ids=[ids[4]]).json()["choices"][0]
    assert ended["token_ids"] == ids[: ids.index(ids[4]) + 1]
    assert ended["finish_reason"] == "stop"


def test_several_prompts_are_answered_in_their_order(server):
    prompts = ["the", "answer is", "stop here"] * 30
    answer = server.complete(prompt=prompts, n=2, max_tokens=2, temperature=0).json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(180))
    alone = [
        server.complete(prompt=each, max_tokens=2, temperature=0).json()["choices"][0]["text"] for each in prompts[:3]
    ]
    assert [choice["text"] for choice in answer["choices"]] == [text for text in alone for _ in range(2)] * 30


def test_max_tokens_is_cut_to_what_the_model_can_read(server):
    choice = server.complete(prompt=[5] * 508, max_tokens=400, ignore_eos=True).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    too_long = server.complete(prompt=[5] * 512)
    assert too_long.status_code == 400
    assert too_long.json()["error"]["code"] == "context_length_exceeded"


def test_chats_go_through_the_template(server):
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "the answer"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "7", "tool_call_id": "1"},
    ]
    body = {"model": NAME, "messages": messages, "max_completion_tokens": 1, "return_token_ids": True}
    ids = server.post(CHAT, body).json()["prompt_token_ids"]
    expected = "<|system|>be brief<|end|><|user|>the answer<|end|><|assistant|><|end|><|tool|>7<|end|><|assistant|>"
    assert server.service.vocabulary.spell(ids) == expected


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT, b'{"model": "tiny", "messages": [', ""),
        (CHAT, b"\xff\xfe", ""),
        (CHAT, b"", ""),
        (CHAT, b"[" * 100_000, ""),
        (CHAT, b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}', ""),
        (CHAT, {"model": NAME}, "messages"),
        (CHAT, {"model": NAME, "messages": []}, "messages"),
        (CHAT, {"model": NAME, "messages": [{"role": "robot", "content": ""}]}, "messages"),
        (COMPLETIONS, {"model": NAME, "prompt": "a", "temprature": 1}, "temprature"),
        (COMPLETIONS, {"model": NAME, "prompt": "a", "n": "2"}, "n"),
        (COMPLETIONS, {"model": NAME, "prompt": "a", "n": 1000}, "n"),
        (COMPLETIONS, {"model": NAME, "prompt": "a", "temperature": -1}, "temperature"),
        (COMPLETIONS, b'{"model": "tiny", "prompt": "a", "temperature": NaN}', ""),
        (COMPLETIONS, {"model": NAME, "prompt": "a", "presence_penalty": 0.5}, "presence_penalty"),
        (COMPLETIONS, {"model": NAME, "prompt": [VOCABULARY]}, "prompt"),
        (COMPLETIONS, {"model": NAME, "prompt": []}, "prompt"),
        (COMPLETIONS, {"model": NAME, "prompt": "a", "stop": [""]}, "stop"),
    ],
)
def test_what_is_wrong_is_named(server, path, body, field):
    answer = server.post(path, body)
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]
    assert server.get("/health").json()["status"] == "ok"


def test_images_are_for_models_that_see_and_addresses_are_not_followed(server):
    def ask(url: str):
        content = [{"type": "image_url", "image_url": {"url": url}}]
        return server.post(CHAT, {"model": NAME, "messages": [{"role": "user", "content": content}]})

    assert "reads text only" in ask("data:image/png;base64,AAAA").json()["error"]["message"]
    for url in ("http://127.0.0.1/a.png", "file:///etc/passwd", "/etc/passwd"):
        assert ask(url).status_code == 400


def test_another_model_is_not_found(server):
    answer = server.complete(model="gpt-4")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_metrics_count(server):
    server.complete(max_tokens=3, ignore_eos=True)
    page = server.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(line.rsplit(" ", 1) for line in page.text.splitlines() if not line.startswith("#"))
    assert float(lines["whet_completion_tokens_total"]) >= 3
    assert float(lines['whet_requests_total{path="/v1/completions",status="200"}']) >= 1
    assert lines["whet_request_seconds_count"] == lines['whet_request_seconds_bucket{le="+Inf"}']
    assert lines["whet_weights_version"] == "0"


def test_the_description_names_what_this_server_allows(server):
    described = json.loads(server.get("/openapi.json").text)
    prompt = described["components"]["schemas"]["CompletionRequest"]["properties"]["prompt"]["anyOf"]
    assert {"type": "integer", "minimum": 0, "maximum": VOCABULARY - 1} in [option.get("items") for option in prompt]
    assert "ImagePart" not in json.dumps(described)


def test_an_engine_that_does_not_stream_sends_each_response_whole(folder, other_folder):
    """As vLLM behind its own server does not; transformers' stands in for it, behind the same protocol."""
    with running(folder) as server:
        service = server.service
        native = service.backend.engine
        service.backend.engine = HFEngine(service.backend.model, native._stop._tokenizer, native._stop._end_ids)
        options = {"n": 3, "max_tokens": 9, "seed": 2, "ignore_eos": True, "return_token_ids": True}
        *events, done = server.events(COMPLETIONS, prompt=["the", "answer"], **options)
        assert done == "[DONE]"
        assert sorted(event["choices"][0]["index"] for event in events) == list(range(6))
        assert all(len(event["choices"][0]["token_ids"]) == 9 for event in events)
        for refused in ({"logprobs": 2}, {"stop_token_ids": [9]}):
            assert server.complete(**refused).status_code == 400
        greedy = {"temperature": 0, "max_tokens": 8}
        before = server.complete(**greedy).json()
        assert server.post("/v1/weights", {"path": str(other_folder), "version": 5}).status_code == 200
        after = server.complete(**greedy).json()
        assert (before["whet"]["version"], after["whet"]["version"]) == (0, 5)
        assert before["choices"][0]["text"] != after["choices"][0]["text"]


def test_whets_own_engine_for_such_servers_samples_from_it(server):
    """`worker.rollout.name=openai` of another run."""
    tokenizer = server.service.backend.engine._stop._tokenizer
    client = Client(server.address, TOKEN, 30)
    engine = OpenAIEngine(client, tokenizer, frozenset({tokenizer.eos_token_id}), 4)
    engine.load_weights(lambda: iter(()), 0)
    prompts = [Prompt("a", [9, 40], ""), Prompt("b", [41], "")]
    samples = engine.generate(prompts, SamplingParams(n=2, max_tokens=6, ignore_eos=True, seed=3))
    assert [len(sample.ids) for sample in samples] == [6] * 4
    assert all(log_prob < 0 for sample in samples for log_prob in sample.log_probs)
    engine.close()
