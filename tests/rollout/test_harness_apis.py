"""Responses and Messages on the session endpoint, with the official clients: turns keep the ids that were drawn."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chat.templates import tokenizer_of
from rollout.scripted import CALL, play

from whet.envs.harness.server import SessionServer

THOUGHT = f"<think>\nTwo numbers.\n</think>\n\n{CALL}"
RESULT = "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
FUNCTION = {"type": "function", "name": "add", "description": "Add.", "parameters": SCHEMA, "strict": False}
TOOL = {"name": "add", "description": "Add.", "input_schema": SCHEMA}


@pytest.fixture(scope="module")
def server() -> Iterator[SessionServer]:
    made = SessionServer()
    yield made
    made.close()


def messages_agent(base_url: str, api_key: str, row: dict[str, Any], stream: bool) -> float:
    import anthropic

    root = base_url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=root, api_key=api_key, max_retries=0) as client:
        chat: list[Any] = [{"role": "user", "content": row["problem"]}]
        options: Any = {"model": "policy", "system": "Add with the tool.", "max_tokens": 100, "tools": [TOOL]}
        if stream:
            with client.messages.stream(messages=chat, **options) as events:
                said = events.get_final_message()
        else:
            said = client.messages.create(messages=chat, **options)
        assert said.stop_reason == "tool_use"
        assert [block.type for block in said.content] == ["thinking", "tool_use"]
        assert said.content[0].thinking == "Two numbers."
        call = said.content[-1]
        assert call.input == {"a": 2, "b": 3}
        chat.append({"role": "assistant", "content": said.content})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "5"}]}
        chat.append({"role": "user", "content": [result]})
        assert client.messages.count_tokens(messages=chat, **_without(options, "max_tokens")).input_tokens > 50
        last = client.messages.create(messages=chat, **options)
        assert (last.stop_reason, last.content[0].text) == ("end_turn", row["answer"])
    return 1.0


def responses_agent(base_url: str, api_key: str, row: dict[str, Any], stream: bool, by_id: bool) -> float:
    from openai import OpenAI

    with OpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
        chat: list[Any] = [{"role": "user", "content": row["problem"]}]
        options: Any = {"model": "policy", "instructions": "Add with the tool.", "tools": [FUNCTION]}
        if stream:
            with client.responses.stream(input=chat, **options) as events:
                said = events.get_final_response()
        else:
            said = client.responses.create(input=chat, **options)
        assert [item.type for item in said.output] == ["reasoning", "function_call"]
        call: Any = said.output[-1]
        assert json.loads(call.arguments) == {"a": 2, "b": 3}
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "5"}
        if by_id:
            last = client.responses.create(input=[result], previous_response_id=said.id, **options)
        else:
            replayed = [item.model_dump(exclude_none=True) for item in said.output]
            last = client.responses.create(input=[*chat, *replayed, result], **options)
        assert (last.status, last.output_text) == ("completed", row["answer"])
    return 1.0


def _without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("in_url", [False, True], ids=["key", "url"])
@pytest.mark.parametrize("api", ["messages", "responses", "responses by id"])
def test_turns_of_other_apis_keep_their_ids(server: SessionServer, api: str, in_url: bool, stream: bool) -> None:
    def run(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        if in_url:
            base_url, api_key = base_url.replace("/v1", f"/sessions/{api_key}/v1"), "unused"
        if api == "messages":
            return messages_agent(base_url, api_key, row, stream)
        return responses_agent(base_url, api_key, row, stream, api.endswith("id"))

    sample, engine, failures = play(server, run, [THOUGHT, "5<|im_end|>"])
    assert failures == []
    assert sample.turn_rewards == [0, 1.0]
    assert sample.branches == [len(sample.ids)]
    assert [segment.by_model for segment in sample.segments] == [True, False, True]
    assert engine.read[1] == sample.prompt.ids + sample.segments[0].ids + sample.segments[1].ids
    assert tokenizer_of("merged results").decode(sample.ids) == f"{THOUGHT}{RESULT}5<|im_end|>"
    assert "<|im_start|>system\nAdd with the tool." in sample.prompt.text


def test_a_stop_sequence_ends_a_message(server: SessionServer) -> None:
    def run(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        import anthropic

        with anthropic.Anthropic(base_url=base_url.removesuffix("/v1"), api_key=api_key) as client:
            chat: Any = [{"role": "user", "content": "count"}]
            said = client.messages.create(model="m", messages=chat, max_tokens=9, stop_sequences=["4", "3"])
        assert (said.content[0].text, said.stop_reason, said.stop_sequence) == ("1 2 ", "stop_sequence", "3")
        return 1.0

    assert play(server, run, ["1 2 3"])[2] == []


MESSAGE = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}
RESPONSE = {"model": "m", "input": "a"}
BAD = [
    ("messages", 7, "the body must be an object"),
    ("messages", {**MESSAGE, "max_tokens": None}, "max_tokens must be a whole number"),
    ("messages", {**MESSAGE, "messages": []}, "messages must not be empty"),
    ("messages", {**MESSAGE, "messages": [{"role": "tool", "content": "a"}]}, "messages.0.role must be user"),
    ("messages", {**MESSAGE, "messages": [{"role": "user", "content": [{"type": "document"}]}]}, "document is not"),
    ("messages", {**MESSAGE, "messages": [{"role": "assistant", "content": "a"}]}, "the last message must not be"),
    ("messages", {**MESSAGE, "tools": [{"type": "bash_20250124", "name": "bash"}]}, "a tool of Anthropic's own"),
    ("messages", {**MESSAGE, "system": [7]}, "system.0 must be an object"),
    ("messages", {**MESSAGE, "tool_choice": {"type": "some"}}, "tool_choice.type must be"),
    ("messages", {**MESSAGE, "stop_sequences": [""]}, "stop_sequences.0 must not be empty"),
    ("messages", {**MESSAGE, "temperature": float("nan")}, "the body is not JSON"),
    ("responses", {**RESPONSE, "instructions": "\ud800"}, "the chat template refuses the messages"),
    ("responses", {**RESPONSE, "input": None}, "input must be a list"),
    ("responses", {**RESPONSE, "input": []}, "input must end with a message"),
    ("responses", {**RESPONSE, "input": [{"type": "item_reference", "id": "x"}]}, "item_reference is not supported"),
    ("responses", {**RESPONSE, "previous_response_id": "resp_1"}, "there is no response resp_1"),
    ("responses", {**RESPONSE, "text": {"format": {"type": "json_schema"}}}, "text.format: only text"),
    ("responses", {**RESPONSE, "tools": [{"type": "web_search"}]}, "web_search is not supported"),
    ("responses", {**RESPONSE, "background": True}, "background=True is not supported"),
    ("responses", {**RESPONSE, "input": [{"type": "function_call", "name": "f"}]}, "input.0.call_id must be a text"),
]


def test_bad_requests_are_refused_with_a_sentence(server: SessionServer) -> None:
    told: list[tuple[int, str]] = []

    def run(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        told.extend(_refused(f"{base_url}/{path}", api_key, body) for path, body, _ in BAD)
        told.append(_refused(f"{base_url}/nothing", api_key, {}))
        return 1.0

    play(server, run, [])
    for (path, body, said), (status, text) in zip(BAD, told):
        assert (status, said in text) == (400, True), (path, body, status, text)
    assert told[-1][0] == 404


def _refused(url: str, api_key: str, body: Any) -> tuple[int, str]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"x-api-key": api_key})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=60)
    return raised.value.code, json.load(raised.value)["error"]["message"]


@pytest.mark.parametrize("read", ["messages", "responses"])
def test_readers_never_raise_anything_else(read: str) -> None:
    from hypothesis import given, settings
    from hypothesis import strategies as st

    from whet.chat.apis.messages_request import read_messages
    from whet.chat.apis.reading import BadRequestError
    from whet.chat.apis.responses_request import read_responses

    names = st.sampled_from(
        [
            *("model", "messages", "input", "role", "content", "type", "text", "user", "assistant", "tools", "name"),
            *("function", "tool_use", "tool_result", "tool_use_id", "id", "call_id", "arguments", "reasoning"),
            *("function_call", "function_call_output", "output", "image", "source", "system", "instructions"),
        ]
    )
    leaves = st.one_of(names, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False))
    values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5))
    reader: Callable[[Any], Any] = (
        (lambda body: read_messages(body, True))
        if read == "messages"
        else (lambda body: read_responses(body, False, lambda name: None))
    )

    @settings(max_examples=150, deadline=None)
    @given(values, values)
    def check(body: Any, chat: Any) -> None:
        for each in (body, MESSAGE | {"messages": [chat]}, RESPONSE | {"input": [chat]}, RESPONSE | {"tools": chat}):
            with contextlib.suppress(BadRequestError):
                reader(each)

    check()
