"""Responses and Messages with the official clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from serving.serving import NAME, TOKEN, Server

from whet.serving.translated import MOST_KEPT, KeptConversations

if TYPE_CHECKING:  # imported by the tests that need them: they take seconds in every worker
    import anthropic
    import openai

ASK: Any = [{"role": "user", "content": "the answer"}]


@pytest.fixture(scope="module")
def claude(server: Server) -> anthropic.Anthropic:
    import anthropic

    return anthropic.Anthropic(base_url=server.address, api_key=TOKEN, max_retries=0)


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=f"{server.address}/v1", api_key=TOKEN, max_retries=0)


def greedy(server: Server, messages: list[Any], tokens: int) -> dict[str, Any]:
    """The same question as a chat completion."""
    body = {"model": NAME, "messages": messages, "max_tokens": tokens, "temperature": 0}
    return server.post("/v1/chat/completions", body).json()  # type: ignore[no-any-return]


def test_a_message_is_the_chat_s_answer_whole_and_streamed(server: Server, claude: anthropic.Anthropic) -> None:
    options: Any = {"model": NAME, "messages": ASK, "max_tokens": 12, "system": "now"}
    options["extra_body"] = {"temperature": 0}  # newer clients have no such argument
    whole = claude.messages.create(**options)
    chat = greedy(server, [{"role": "system", "content": "now"}, *ASK], 12)
    assert whole.content[0].text == chat["choices"][0]["message"]["content"]
    assert whole.usage.input_tokens == chat["usage"]["prompt_tokens"]
    assert whole.usage.output_tokens == chat["usage"]["completion_tokens"]
    assert whole.stop_reason == {"stop": "end_turn", "length": "max_tokens"}[chat["choices"][0]["finish_reason"]]
    with claude.messages.stream(**options) as stream:
        streamed = stream.get_final_message()
    assert [block.model_dump() for block in streamed.content] == [block.model_dump() for block in whole.content]
    assert (streamed.usage.output_tokens, streamed.stop_reason) == (whole.usage.output_tokens, whole.stop_reason)
    counted = claude.messages.count_tokens(**{name: options[name] for name in ("model", "messages", "system")})
    assert counted.input_tokens == whole.usage.input_tokens


def test_a_response_is_the_chat_s_answer_whole_and_streamed(server: Server, client: openai.OpenAI) -> None:
    options: Any = {"model": NAME, "input": ASK, "max_output_tokens": 12, "temperature": 0, "instructions": "now"}
    whole = client.responses.create(**options)
    chat = greedy(server, [{"role": "system", "content": "now"}, *ASK], 12)
    assert whole.output_text == chat["choices"][0]["message"]["content"]
    assert whole.usage.total_tokens == chat["usage"]["total_tokens"]
    with client.responses.stream(**options) as stream:
        events: list[Any] = list(stream)
    streamed = events[-1].response  # the client's own way wants one that was not cut
    assert (events[0].type, events[-1].type) == ("response.created", f"response.{whole.status}")
    assert streamed.output_text == whole.output_text
    assert (streamed.status, streamed.usage) == (whole.status, whole.usage)


def test_a_response_is_gone_on_from_by_its_id(server: Server, client: openai.OpenAI) -> None:
    import openai

    first = client.responses.create(model=NAME, input="the answer", max_output_tokens=6, temperature=0)
    more: Any = {"model": NAME, "input": "and now", "max_output_tokens": 6, "temperature": 0}
    second = client.responses.create(previous_response_id=first.id, **more)
    said = {"role": "assistant", "content": first.output_text}
    chat = greedy(server, [*ASK, said, {"role": "user", "content": "and now"}], 6)
    assert second.output_text == chat["choices"][0]["message"]["content"]
    assert second.usage.input_tokens == chat["usage"]["prompt_tokens"]
    unkept = client.responses.create(model=NAME, input="the answer", max_output_tokens=2, store=False)
    with pytest.raises(openai.BadRequestError, match="there is no response resp_"):
        client.responses.create(previous_response_id=unkept.id, **more)


def test_oldest_conversations_are_forgotten() -> None:
    kept = KeptConversations()
    for number in range(MOST_KEPT + 2):
        kept.add(str(number), [{"role": "user", "content": str(number)}])
    assert [kept.get(name) is None for name in ("0", "1", "2")] == [True, True, False]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("messages", b"{", "is not JSON"),
        ("messages", {"model": NAME, "messages": ASK}, "max_tokens must be a whole number"),
        ("messages", {"model": NAME, "messages": ASK, "max_tokens": 5, "colour": 1}, "colour: this field is not"),
        ("messages", {"model": NAME, "messages": ASK, "max_tokens": 5, "temperature": -1}, "temperature: "),
        (
            "messages",
            {"model": NAME, "messages": [{"role": "user", "content": [{"type": "image"}]}], "max_tokens": 5},
            "so",
        ),
        ("responses", {"model": NAME, "input": 7}, "input must be a list"),
        ("responses", {"model": NAME, "input": "a", "n": 2}, "n: this field is not supported"),
        ("responses", {"model": NAME, "input": "a", "max_output_tokens": "9"}, "max_output_tokens must be"),
        ("messages/count_tokens", {"model": NAME, "messages": 1}, "messages must be a list"),
    ],
)
def test_bad_requests_get_400_with_a_sentence(server: Server, path: str, body: Any, said: str) -> None:
    answer = server.post(f"/v1/{path}", body)
    error = answer.json()["error"]
    assert (answer.status_code, said in error["message"]) == (400, True), answer.text
    assert answer.json().get("type") == ("error" if path.startswith("messages") else None)


def test_keys_and_models_are_checked(server: Server, claude: anthropic.Anthropic) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError, match="there is no model"):
        claude.messages.create(model="claude", messages=ASK, max_tokens=5)
    wrong = anthropic.Anthropic(base_url=server.address, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        wrong.messages.create(model=NAME, messages=ASK, max_tokens=5)


def test_reasoning_stop_sequences_and_calls(
    server: Server, claude: anthropic.Anthropic, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '<think>\nwell\n</think>\n\nso <tool_call>\n{"name": "f", "arguments": {"x": "é"}}\n</tool_call>'
    _scripted(server, monkeypatch, text)
    tool: Any = {"name": "f", "input_schema": {"type": "object", "properties": {"x": {"type": "string"}}}}
    for make in (claude.messages.create, lambda **given: _final(claude, **given)):
        said: Any = make(model=NAME, messages=ASK, max_tokens=400, tools=[tool])
        assert [block.type for block in said.content] == ["thinking", "text", "tool_use"]
        assert (said.content[0].thinking, said.content[1].text.strip()) == ("well", "so")
        assert (said.content[2].input, said.stop_reason) == ({"x": "é"}, "tool_use")
    plain: Any = claude.messages.create(model=NAME, messages=ASK, max_tokens=400, stop_sequences=["<tool"])
    assert [block.type for block in plain.content] == ["thinking", "text"]
    assert (plain.stop_reason, plain.stop_sequence) == ("stop_sequence", "<tool")
    function: Any = {"type": "function", "name": "f", "parameters": tool["input_schema"]}
    answer = client.responses.create(model=NAME, input="a", max_output_tokens=400, tools=[function])
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call"]
    call: Any = answer.output[2]
    assert json.loads(call.arguments) == {"x": "é"}


def _final(claude: anthropic.Anthropic, **given: Any) -> Any:
    with claude.messages.stream(**given) as stream:
        return stream.get_final_message()


def _scripted(server: Server, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have the engine write a text, token by token."""
    from whet.rollout.engine import Piece

    service = server.service
    ids = service.maker._tokenizer(text, add_special_tokens=False)["input_ids"]

    async def pieces(prompts: Any, params: Any, streamed: bool) -> Any:
        for place, token in enumerate(ids):
            yield Piece(0, 0, [token], [-0.5], [], "stop" if place + 1 == len(ids) else None)

    monkeypatch.setattr(service, "pieces", pieces)
