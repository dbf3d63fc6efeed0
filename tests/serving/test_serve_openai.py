"""The official client, as people use it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from serving.serving import NAME, TOKEN, running

from whet.rollout.engines.native.engine import NativeEngine

if TYPE_CHECKING:  # imported by the tests that need it: it takes seconds in every worker
    import openai

ASK = [{"role": "user", "content": "the answer"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def client(server) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=f"{server.address}/v1", api_key=TOKEN, max_retries=0)


def test_models(client):
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).id == NAME


def test_chat_whole_and_streamed(client):
    options = {"model": NAME, "messages": ASK, "seed": 4, "max_completion_tokens": 30, "n": 2}
    whole = client.chat.completions.create(**options, logprobs=True, top_logprobs=3)
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 3
    texts, usage = ["", ""], None
    for chunk in client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert usage == whole.usage


def test_the_clients_own_way_of_putting_a_stream_together(client):
    # It insists on responses that end by themselves, so that most tokens are made to end one.
    ends = {"stop_token_ids": list(range(5, 260))}
    options = {"model": NAME, "messages": ASK, "seed": 4, "max_tokens": 400, "extra_body": ends}
    with client.chat.completions.stream(**options) as stream:
        final = stream.get_final_completion()
    whole = client.chat.completions.create(**options)
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason


def test_completions_with_token_ids_in_and_out(client):
    options = {"model": NAME, "prompt": [[9, 40], [41]], "seed": 1, "max_tokens": 12, "logprobs": 2}
    whole = client.completions.create(**options, extra_body={"return_token_ids": True})
    assert [choice.prompt_token_ids for choice in whole.choices] == [[9, 40], [41]]
    for choice in whole.choices:
        assert len(choice.token_ids) == len(choice.logprobs.token_logprobs) == len(choice.logprobs.top_logprobs)
    texts = ["", ""]
    for chunk in client.completions.create(**options, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in whole.choices]


def test_errors_are_the_clients_own(client, server):
    import openai

    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4", messages=ASK)
    with pytest.raises(openai.BadRequestError, match="response_format"):
        client.chat.completions.create(model=NAME, messages=ASK, response_format={"type": "json_object"})
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="wrong").models.list()


def test_a_cut_stream_raises(folder, monkeypatch):
    import openai

    with running(folder, "serve.request_timeout=1.5") as server:
        server.delay(monkeypatch)
        client = openai.OpenAI(base_url=f"{server.address}/v1", api_key=TOKEN, max_retries=0)
        options = {"model": NAME, "messages": ASK, "n": 8, "extra_body": {"ignore_eos": True}}
        with pytest.raises(openai.APIError, match="request_timeout"):
            list(client.chat.completions.create(**options, stream=True))


def test_the_asynchronous_client_streams_many_at_once(server):
    import openai

    async def one(client: openai.AsyncOpenAI, seed: int) -> str:
        options = {"model": NAME, "messages": ASK, "seed": seed, "max_tokens": 20}
        stream = await client.chat.completions.create(**options, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.address}/v1", api_key=TOKEN, max_retries=0) as client:
            return await asyncio.gather(*(one(client, seed) for seed in range(16)))

    streamed = asyncio.run(all_())
    whole = [server.chat(seed=seed, max_tokens=20).json()["choices"][0]["message"]["content"] for seed in range(16)]
    assert streamed == whole


def script(server, monkeypatch, text):
    """Replace the tokens of the random model by those of one that calls tools; all else is real."""
    tokenizer = server.service.backend.engine._stop._tokenizer
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    engine: NativeEngine = server.service.backend.engine
    real = engine._append

    def scripted(drawn):
        for each in drawn:
            for place, sequence in enumerate(each.sequences):
                each.tokens[place][:] = ids[len(sequence.ids) : len(sequence.ids) + 1]
        real(drawn)

    monkeypatch.setattr(engine, "_append", scripted)


def answered(client, stream, **options):
    options = {"model": NAME, "messages": ASK, "tools": [TOOL]} | options
    if stream:
        with client.chat.completions.stream(**options) as events:
            return events.get_final_completion().choices[0]
    return client.chat.completions.create(**options).choices[0]


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls(client, server, monkeypatch, stream):
    text = f"<think>\nWhere?\n</think>\n\nI look.\n{CALL}\n{CALL}"
    script(server, monkeypatch, text)
    choice = answered(client, stream)
    assert [call.function.name for call in choice.message.tool_calls] == ["weather"] * 2
    assert json.loads(choice.message.tool_calls[1].function.arguments) == {"city": "Bern"}
    assert choice.message.content == "I look."
    assert choice.finish_reason == "tool_calls"
    without = client.chat.completions.create(model=NAME, messages=ASK, tools=[TOOL], tool_choice="none").choices[0]
    assert without.message.content == text
    assert without.finish_reason == "stop"


def test_reasoning_is_kept_apart_and_can_be_sent_back(client, server, monkeypatch):
    script(server, monkeypatch, f"<think>\nWhere?\n</think>\n\n{CALL}")
    message = answered(client, False).message
    assert message.reasoning_content == "Where?"
    streamed = client.chat.completions.create(model=NAME, messages=ASK, tools=[TOOL], stream=True)
    deltas = [chunk.choices[0].delta for chunk in streamed if chunk.choices]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Where?"
    turn = message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    assert answered(client, False, messages=[*ASK, turn, result]).message.tool_calls


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_calls_can_be_forced(client, server, monkeypatch, stream, choice):
    script(server, monkeypatch, '{"city": "Bern"}}\n</tool_call>')  # the rest is in the prompt
    made = answered(client, stream, tool_choice=choice)
    (call,) = made.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Bern"})
    assert (made.message.content, made.finish_reason) == (None, "tool_calls")


def test_tool_choices_that_cannot_be(client):
    import openai

    named = {"type": "function", "function": {"name": "other"}}
    for options, match in (
        ({"tools": [TOOL], "tool_choice": named}, "no tool other"),
        ({"tool_choice": "required"}, "there are no tools"),
        ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
    ):
        with pytest.raises(openai.BadRequestError, match=match):
            client.chat.completions.create(model=NAME, messages=ASK, **options)
