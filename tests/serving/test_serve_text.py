"""Text does not depend on how its tokens came; stop strings and tool calls are found wherever they are cut."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from whet.assets.tokenizer import make_tokenizer
from whet.chat.calls.registry import FORMATS
from whet.serving.text import Detokenizer, StopCut, Vocabulary
from whet.serving.tools import CallReader, ToolSplit

BYTES = make_tokenizer(["the answer is seven", "żółć 北京 🙂🙃"] * 3, vocab_size=320)


def _metaspace() -> PreTrainedTokenizerFast:
    """A tokenizer that marks words by their space, and drops the first one, with bytes for what it does not know."""
    words = ["<unk>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "▁the", "▁an", "swer", "a", "b", "▁is"]
    model = models.BPE({word: i for i, word in enumerate(words)}, [], byte_fallback=True, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


def _in_pieces(vocabulary: Vocabulary, ids: list[int], cuts: random.Random) -> str:
    detokenizer, text, at = Detokenizer(vocabulary), "", 0
    while at < len(ids):
        step = cuts.randint(1, 4)
        text += detokenizer.add(ids[at : at + step])
        at += step
    return text + detokenizer.finish()


@pytest.mark.parametrize("tokenizer", [BYTES, _metaspace()], ids=["bytes", "metaspace"])
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_pieces_make_the_text_of_the_whole(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    vocabulary = Vocabulary(tokenizer)
    whole = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert _in_pieces(vocabulary, ids, random.Random(data.draw(st.integers(0, 99)))) == whole


def test_a_character_of_several_tokens_comes_whole():
    ids = BYTES("a𝄞b", add_special_tokens=False)["input_ids"]
    assert len(ids) > 3
    detokenizer = Detokenizer(Vocabulary(BYTES))
    pieces = [detokenizer.add([token]) for token in ids]
    assert [piece for piece in pieces if piece] == ["a", "𝄞", "b"]


@settings(max_examples=200, deadline=None)
@given(
    st.text("ab\n", max_size=30), st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3), st.data()
)
def test_text_ends_before_the_stop_string_that_is_complete_first(text, stops, data):
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    longest = max((len(s) for s in stops if ends and text[: ends[0]].endswith(s)), default=0)
    expected = text[: ends[0] - longest] if ends else text
    cut, got, at = StopCut(stops), "", 0
    while at < len(text):
        step = data.draw(st.integers(1, 5))
        got += cut.add(text[at : at + step])
        at += step
    got += "" if cut.stopped else cut.finish()
    assert got == expected
    assert cut.stopped == bool(ends)


def test_a_stop_string_can_stay():
    cut = StopCut(["END"], keep=True)
    assert cut.add("it is 7 EN") + cut.add("D and more") + cut.add("x") == "it is 7 END"


CALLS = (
    'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>\n'
    '<tool_call>{"name": "time", "arguments": "{\\"zone\\": 1}"}</tool_call>'
)


def taken(form, text, step, **options):
    """Return what a response becomes in pieces of so many characters: text, reasoning and calls."""
    split, told, thought = ToolSplit(CallReader(FORMATS.find(form), **options)), "", ""
    for at in range(0, len(text), step):
        shown, reasoning = split.add(text[at : at + step])
        told, thought = told + shown, thought + reasoning
    shown, reasoning, calls = split.finish()
    assert len({call.id for call in calls}) == len(calls)
    return told + shown, thought + reasoning, [(call.name, call.arguments) for call in calls]


WEATHER = ("weather", '{"city": "Bern"}')
PARAMETERS = {"n": {"type": "integer"}, "city": {"type": "string"}}
TYPED = [{"type": "function", "function": {"name": "add", "parameters": {"properties": PARAMETERS}}}]
STEPS = (1, 2, 3, 7, 11, 1000)


@pytest.mark.parametrize(
    ("form", "text", "wanted"),
    [
        ("hermes", CALLS, ("Let me look.", "", [WEATHER, ("time", '{"zone": 1}')])),
        (
            "hermes",
            f"<think>\nIs it?\n</think>\n\n{CALLS}",
            ("Let me look.", "Is it?", [WEATHER, ("time", '{"zone": 1}')]),
        ),
        ("hermes", "<think>a <tool_call>{}</tool_call> b</think>\n\n4", ("4", "a <tool_call>{}</tool_call> b", [])),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}', ("", "", [("f", "{}")])),
        ("hermes", '<think>now <tool_call>{"name": "f", "arguments": {}}</tool_call>', ("", "now", [("f", "{}")])),
        ("llama", '{"name": "weather", "parameters": {"city": "Bern"}}', ("", "", [WEATHER])),
        ("llama", "The set {1, 2} has two.", ("The set {1, 2} has two.", "", [])),
        ("pythonic", "[weather(city='Bern')]", ("", "", [WEATHER])),
        ("mistral", 'Well.[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Bern"}}]', ("Well.", "", [WEATHER])),
        ("mistral", "[THINK]hm[/THINK]4", ("4", "hm", [])),
        (
            "qwen3_coder",
            "<tool_call>\n<function=add>\n<parameter=n>\n3\n</parameter>\n<parameter=city>\n4\n</parameter>\n"
            "</function>\n</tool_call>",
            ("", "", [("add", '{"n": 3, "city": "4"}')]),
        ),
        (
            "gptoss",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
            '<|constrain|>json<|message|>{"city": "Bern"}<|call|>',
            ("", "hm", [WEATHER]),
        ),
        ("gptoss", "<|channel|>final<|message|>It is 4.<|return|>", ("It is 4.", "", [])),
    ],
)
def test_calls_and_reasoning_are_found_however_the_text_is_cut(form, text, wanted):
    for step in STEPS:
        assert taken(form, text, step, tools=TYPED) == wanted, step


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{not json}</tool_call>",
        '<tool_call>{"name": 3}</tool_call>',
        "a < b <tool",
        "<tool_call>",
        "plain ",
        "<th",
    ],
)
def test_what_is_no_call_stays_text(text):
    for step in STEPS:
        assert taken("hermes", text, step) == (text, "", [])


@pytest.mark.parametrize("parameters", [{"properties": 3}, {"properties": {"city": {"type": [{}]}}}, {"required": 1}])
def test_schemas_of_clients_may_be_anything(parameters):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    assert taken("hermes", CALLS, 7, tools=tools)[2][0] == WEATHER


def test_reasoning_that_began_in_the_prompt():
    for step in STEPS:
        assert taken("hermes", "hm\n</think>\n\n4", step, thinks=True) == ("4", "hm", [])
        assert taken("hermes", "and so on ", step, thinks=True) == ("", "and so on", [])


def test_a_call_that_began_in_the_prompt():
    begun = '</think>\n\n<tool_call>\n{"name": "weather", "arguments": '
    for step in STEPS:
        assert taken("hermes", '{"city": "Bern"}}\n</tool_call>', step, begun=begun, thinks=True) == ("", "", [WEATHER])
