"""Text does not depend on how its tokens came; stop strings and tool calls are found wherever they are cut."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from whet.assets.tokenizer import make_tokenizer
from whet.serving.text import Detokenizer, StopCut, Vocabulary
from whet.serving.tools import ToolSplit, read_call

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


@pytest.mark.parametrize("step", [1, 2, 3, 7, 11, 1000])
def test_calls_are_found_however_the_text_is_cut(step):
    split, text, calls = ToolSplit(), "", []
    for at in range(0, len(CALLS), step):
        shown, found = split.add(CALLS[at : at + step])
        text, calls = text + shown, calls + found
    shown, found = split.finish()
    assert text + shown == "Let me look.\n"
    assert [(c.name, c.arguments) for c in calls + found] == [("weather", '{"city": "Bern"}'), ("time", '{"zone": 1}')]
    assert len({c.id for c in calls}) == 2


@pytest.mark.parametrize(
    "text",
    ["<tool_call>{not json}</tool_call>", '<tool_call>{"name": 3}</tool_call>', "a < b <tool", "<tool_call>", "plain"],
)
def test_what_is_no_call_stays_text(text):
    split = ToolSplit()
    shown, calls = split.add(text)
    rest, more = split.finish()
    assert (shown + rest, calls + more) == (text, [])


def test_the_closing_tag_may_be_missing_at_the_end():
    split = ToolSplit()
    assert split.add('<tool_call>{"name": "f", "arguments": {}}') == ("", [])
    assert [call.name for call in split.finish()[1]] == ["f"]
    assert read_call('{"name": "f", "arguments": [1]}') is None
