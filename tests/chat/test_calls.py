"""Parsers of tool calls: what models of each family write, what is wrong, and anything at all."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.chat.calls.registry import FORMATS, detect, parser
from whet.errors import UserError

ONE = {"city": "Bern", "days": 3}
# Of each format: a turn with reasoning, text and two calls as models of the family write it, and a malformed one.
WRITTEN = {
    "hermes": (
        '<think>\nI "look".\n</think>\n\nLet me see.\n'
        '<tool_call>\n{"name": "f", "arguments": {"city": "Bern", "days": 3}}'
        '\n</tool_call>\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"city": }\n</tool_call>',
    ),
    "qwen3_coder": (
        "I look.\n</think>\n\nLet me see.\n<tool_call>\n<function=f>\n<parameter=city>\nBern\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=city>\nBern\n</function>\n</tool_call>",
    ),
    "glm": (
        "<think>I look.</think>Let me see.\n<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call><|observation|>",
        "<tool_call>f\n<arg_key>city</arg_key>\n</tool_call>",
    ),
    "llama": (
        '<|python_tag|>{"name": "f", "parameters": {"city": "Bern", "days": 3}}; '
        '{"name": "g", "parameters": {}}<|eom_id|>',
        '{"name": "f", "parameters": {"city": "Bern"',
    ),
    "pythonic": ("[f(city='Bern', days=3), g()]<|eot|>", "[f(city=open('x'))]"),
    "mistral": (
        '[THINK]I look.[/THINK]Let me see.[TOOL_CALLS] [{"name": "f", "arguments": {"city": "Bern", "days": 3}, "id": '
        '"abcdefghi"}, {"name": "g", "arguments": {}}]</s>',
        '[TOOL_CALLS] [{"name": "f", "arguments"]',
    ),
    "deepseek": (
        "I look.\n</think>\n\nLet me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        '{"city": "Bern", "days": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>'
        "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "kimi": (
        "<think>I look.</think>Let me see.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
        '<|tool_call_argument_begin|>{"city": "Bern", "days": 3}<|tool_call_end|><|tool_call_begin|>functions.g:1'
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|><|im_end|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{<|tool_call_end|>",
    ),
    "gptoss": (
        "<|channel|>analysis<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>"
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>"
        '{"city": "Bern", "days": 3}<|call|><|start|>assistant<|channel|>commentary to=functions.g <|constrain|>json'
        "<|message|>{}<|call|>",
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{<|call|>",
    ),
    "gemma": (
        '<|channel>thought\nI look.\n<channel|>Let me see.<|tool_call>call:f{city:<|"|>Bern<|"|>,days:3}<tool_call|>'
        "<|tool_call>call:g{}<tool_call|><|tool_response>",
        '<|tool_call>call:f{city:<|"|>Bern}<tool_call|>',
    ),
    "react": (
        'Thought: I look.\nAction: f\nAction Input: {"city": "Bern", "days": 3}\nObservation: invented',
        'Action: f\nAction Input: {"city": ',
    ),
}
UNTYPED = ("qwen3_coder", "glm")  # values are texts until a schema gives them types
SILENT = ("llama", "pythonic", "react")  # without reasoning and text of their own


def test_every_format_is_tested() -> None:
    assert set(FORMATS.names) == WRITTEN.keys()


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_turn_with_calls(name: str) -> None:
    turn = parser(name)(WRITTEN[name][0])
    assert not turn.bad
    assert [call.name for call in turn.calls] == (["f"] if name == "react" else ["f", "g"])
    assert turn.calls[0].arguments == (ONE | {"days": "3"} if name in UNTYPED else ONE)
    if name not in SILENT:
        assert turn.content == "Let me see."
        assert "look" in (turn.reasoning or "")
    assert len({call.id for call in turn.calls}) == len(turn.calls)
    assert parser(name)(WRITTEN[name][0]).calls == turn.calls  # ids are the same in a resumed run


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_malformed_call_is_bad_with_a_reason(name: str) -> None:
    turn = parser(name)(WRITTEN[name][1])
    assert not turn.calls
    assert len(turn.bad) == 1
    assert len(turn.bad[0].reason) > 10


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_turn_without_calls_is_content(name: str) -> None:
    turn = parser(name)("The answer is 42.")
    assert (turn.content, turn.calls, turn.bad) == ("The answer is 42.", [], [])


def test_calls_inside_reasoning_are_none() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert not parser("hermes")(f"<think>{call}</think>done").calls
    assert len(parser("hermes")(f"<think>hm {call}").calls) == 1  # reasoning that never ends is ended by a call


def test_arguments_may_be_text_of_json() -> None:
    (call,) = parser("hermes")('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>').calls
    assert call.arguments == {"a": 1}


@pytest.mark.parametrize(
    "bad", ["[1]", '{"name": 3}', '{"name": "f", "arguments": [1]}', '{"name": "f", "arguments": NaN}']
)
def test_json_that_is_no_call(bad: str) -> None:
    turn = parser("hermes")(f"<tool_call>{bad}</tool_call>")
    assert not turn.calls
    assert len(turn.bad) == 1


def test_nested_values_of_gemma() -> None:
    (call,) = parser("gemma")('<|tool_call>call:f{o:{x:1,y:[1,<|"|>a,}b<|"|>,null]},l:[]}<tool_call|>').calls
    assert call.arguments == {"o": {"x": 1, "y": [1, "a,}b", None]}, "l": []}


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(UserError, match="hermez"):
        parser("hermez")


def test_formats_are_found_in_templates() -> None:
    marks = {name: " ".join(FORMATS.find(name).marks) for name in WRITTEN}
    assert {name: detect(f"{{{{ '<tool_call>' }}}} {text}") for name, text in marks.items()} == {n: n for n in WRITTEN}
    assert detect(None) == "hermes"


PIECES = sorted({piece for pair in WRITTEN.values() for text in pair for piece in (text, text[: len(text) // 2])})
MARKS = sorted({mark for name in WRITTEN for mark in FORMATS.find(name).opens + FORMATS.find(name).marks})
TEXT = st.lists(st.sampled_from(PIECES + MARKS + ["{", "}", "[", '"', ":", "\n", "</think>"]) | st.text(max_size=20))


@pytest.mark.parametrize("name", sorted(WRITTEN))
@settings(max_examples=60, deadline=None)
@given(pieces=TEXT)
def test_no_text_raises(name: str, pieces: list[str]) -> None:
    turn = parser(name)("".join(pieces))
    for call in turn.calls:
        assert call.name
        json.dumps(call.arguments, default=repr)


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_long_texts_take_linear_time(name: str) -> None:
    form = FORMATS.find(name)
    for seed in (form.opens[-1], *WRITTEN[name], '{"name": "f", ['):
        text = (seed * (1_000_000 // len(seed)))[:1_000_000]
        start = time.perf_counter()
        form.parse(text)
        assert time.perf_counter() - start < 10, seed
