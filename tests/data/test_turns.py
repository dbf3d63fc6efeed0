"""The tokens that a model learns from are those it would write itself, token for token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from data import chat_templates as kinds
from data.chat_templates import merging_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from whet.config.schema.data import DataConfig
from whet.config.schema.jobs import SftConfig
from whet.data.dataset import PromptDataset
from whet.data.demonstrations import DemonstrationDataset
from whet.errors import UserError
from whet.types import Sample

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is two plus three?"},
    {"role": "assistant", "content": "It is five."},
    {"role": "user", "content": "And one more?"},
    {"role": "assistant", "content": "Six.\n\nGood day."},
]
LONG = {"max_prompt_length": 2000, "max_response_length": 2000}


def dataset_of(
    tokenizer: Any, rows: list[dict[str, Any]], folder: Path, sft: SftConfig | None = None, **data: Any
) -> DemonstrationDataset:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ends = {tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(["<|stop|>"])} - {None}
    return DemonstrationDataset(str(file), DataConfig(**LONG | data), sft or SftConfig(), tokenizer, ends)


def samples_of(tokenizer: Any, rows: list[dict[str, Any]], folder: Path, **keys: Any) -> list[Sample]:
    dataset = dataset_of(tokenizer, rows, folder, **keys)
    return [sample for row in dataset.take(range(len(dataset))) for sample in row]


def learned(sample: Sample, tokenizer: Any) -> list[str]:
    """The texts of the stretches that are learned."""
    texts, before = [], 0
    for token, wrote in zip(sample.ids, sample.mask):
        if wrote and not before:
            texts.append([])
        if wrote:
            texts[-1].append(token)
        before = wrote
    return [tokenizer.decode(ids) for ids in texts]


def seen_before_writing(tokenizer: Any, messages: list[dict[str, Any]], **keys: Any) -> list[int]:
    """What the model is given when it is to write the next turn."""
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **keys)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("template", [kinds.PLAIN, kinds.MARKED, kinds.HEADED], ids=["plain", "marked", "headed"])
def test_every_turn_of_the_assistant_and_nothing_else(tmp_path, template):
    tokenizer = merging_tokenizer(template)
    (sample,) = samples_of(tokenizer, [{"messages": CHAT}], tmp_path)
    assert learned(sample, tokenizer) == ["It is five.<|stop|>", "Six.\n\nGood day.<|stop|>"]
    whole = sample.prompt.ids + sample.ids
    assert sample.prompt.ids == seen_before_writing(tokenizer, CHAT[:2])
    last = tokenizer("Six.\n\nGood day.<|stop|>")["input_ids"]
    assert whole[-len(last) :] == last
    if template != kinds.HEADED:  # whose line breaks this tokenizer parts once a word follows, in later prompts too
        assert whole[: -len(last)] == seen_before_writing(tokenizer, CHAT[:4])
    assert tokenizer.decode(whole) == tokenizer.apply_chat_template(CHAT, tokenize=False).rstrip("\n")
    assert sample.mask[0] == sample.mask[-1] == 1


def test_marks_are_those_of_transformers(tmp_path):
    tokenizer = merging_tokenizer(kinds.MARKED)
    (sample,) = samples_of(tokenizer, [{"messages": CHAT}], tmp_path)
    theirs = tokenizer.apply_chat_template(CHAT, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    end = len(sample.prompt.ids) + len(sample.ids)
    assert sample.prompt.ids + sample.ids == theirs["input_ids"][:end]
    assert [0] * len(sample.prompt.ids) + sample.mask == theirs["assistant_masks"][:end]
    assert not any(theirs["assistant_masks"][end:])


def test_no_token_reaches_over_the_place_where_the_model_begins(tmp_path):
    """A response that begins with a line break would be one token with the template's own."""
    chat = [CHAT[1], {"role": "assistant", "content": "\n\nAnd five."}]
    for template in (kinds.PLAIN, kinds.MARKED):
        tokenizer = merging_tokenizer(template)
        merged = tokenizer(tokenizer.apply_chat_template(chat, tokenize=False))["input_ids"]
        (sample,) = samples_of(tokenizer, [{"messages": chat}], tmp_path)
        assert sample.prompt.ids == seen_before_writing(tokenizer, chat[:1])
        assert merged[: len(sample.prompt.ids)] != sample.prompt.ids  # so that this test means something
        assert sample.ids == tokenizer("\n\nAnd five.<|stop|>")["input_ids"]


def test_thoughts_are_learned_where_they_are_thought(tmp_path):
    chat = [
        CHAT[1],
        {"role": "assistant", "content": "<think>\nTwo, three.\n</think>\n\nFive."},
        {"role": "user", "content": "And one more?"},
        {"role": "assistant", "content": "<think>\nFive, one.\n</think>\n\nSix."},
    ]
    tokenizer = merging_tokenizer(kinds.THINKING)
    first, second = samples_of(tokenizer, [{"messages": chat}], tmp_path)
    assert learned(first, tokenizer) == ["<think>\nTwo, three.\n</think>\n\nFive.<|stop|>"]
    assert learned(second, tokenizer) == ["<think>\nFive, one.\n</think>\n\nSix.<|stop|>"]
    assert first.prompt.ids == seen_before_writing(tokenizer, chat[:1])
    assert second.prompt.ids == seen_before_writing(tokenizer, chat[:3])
    assert "Two, three" not in second.prompt.text
    (last,) = samples_of(tokenizer, [{"messages": chat}], tmp_path, sft=SftConfig(train_on="last"))
    assert (last.prompt.ids, last.ids, last.mask) == (second.prompt.ids, second.ids, second.mask)


def test_turns_without_thoughts_get_the_empty_ones_of_the_template(tmp_path):
    tokenizer = merging_tokenizer(kinds.THINKING)
    (sample,) = samples_of(tokenizer, [{"messages": CHAT[:3]}], tmp_path)
    assert learned(sample, tokenizer) == ["<think>\n\n</think>\n\nIt is five.<|stop|>"]


def test_a_template_that_opens_thoughts_it_never_writes_is_refused(tmp_path):
    tokenizer = merging_tokenizer(kinds.OPENED)
    chat = [CHAT[1], {"role": "assistant", "content": "<think>\nTwo, three.\n</think>\n\nFive."}]
    with pytest.raises(UserError, match=r"rows.jsonl:1: the chat template does not write turn 2 where .*response"):
        samples_of(tokenizer, [{"messages": chat}], tmp_path)
    response = {"prompt": chat[0]["content"], "response": "Two, three.\n</think>\n\nFive."}
    (sample,) = samples_of(tokenizer, [response], tmp_path)
    assert sample.prompt.ids == seen_before_writing(tokenizer, chat[:1])
    assert learned(sample, tokenizer) == ["Two, three.\n</think>\n\nFive.<|stop|>"]


CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("template", [kinds.TOOLS, kinds.TOOLS_OF_TEXT], ids=["objects", "texts"])
@pytest.mark.parametrize("as_text", [False, True])
def test_calls_are_learned_and_what_tools_answer_is_not(tmp_path, template, as_text):
    call = json.loads(json.dumps(CALL))
    tools: Any = [TOOL]
    if as_text:  # as OpenAI's API has them, and as Parquet files have to
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        tools = json.dumps(tools)
    chat = [
        {"role": "user", "content": "What is two plus three?", "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": [{**call, "index": None}]},
        {"role": "tool", "content": "It is five.", "tool_calls": None},
        {"role": "assistant", "content": "Five.", "tool_calls": None},
        {"role": "user", "content": "Good.", "tool_calls": None},
    ]
    tokenizer = merging_tokenizer(template)
    (sample,) = samples_of(tokenizer, [{"messages": chat, "tools": tools}], tmp_path)
    written = '<call>{"name": "add", "arguments": {"a": 2, "b": 3}}</call><|stop|>'
    assert learned(sample, tokenizer) == [written, "Five.<|stop|>"]
    assert json.dumps(TOOL) in sample.prompt.text
    assert sample.prompt.ids == seen_before_writing(tokenizer, chat[:1], tools=[TOOL])


def test_a_template_without_tools_is_refused_for_calls(tmp_path):
    chat = [CHAT[1], {"role": "assistant", "tool_calls": [CALL]}]
    with pytest.raises(UserError, match=r"rows.jsonl:1: the chat template does not write the call of 'add'"):
        samples_of(merging_tokenizer(kinds.PLAIN), [{"messages": chat, "tools": [TOOL]}], tmp_path)


def test_templates_that_spell_no_words_as_none(tmp_path):
    """They are given an empty text; those that ask whether there are words get null."""
    template = kinds.TOOLS.replace("{%- if m.content -%}{{ m.content }}{%- endif -%}", "{{ m.content }}")
    asking = kinds.TOOLS.replace(
        "{%- if m.content -%}{{ m.content }}", "{%- if m.content is not none -%}said: {{ m.content }}"
    )
    chat = [CHAT[1], {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    for each in (template, asking):
        tokenizer = merging_tokenizer(each)
        (sample,) = samples_of(tokenizer, [{"messages": chat}], tmp_path)
        assert learned(sample, tokenizer) == ['<call>{"name": "add", "arguments": {"a": 2, "b": 3}}</call><|stop|>']


def test_a_turn_ends_with_the_first_token_that_ends_it(tmp_path):
    closing = kinds.PLAIN + "{%- if not add_generation_prompt -%}{{ '<|eos|>' }}{%- endif -%}"
    tokenizer = merging_tokenizer(closing)
    first, second = samples_of(tokenizer, [{"messages": CHAT}], tmp_path)
    assert learned(first, tokenizer) == ["It is five.<|stop|>"]
    assert learned(second, tokenizer) == ["Six.\n\nGood day.<|stop|>"]


def test_a_turn_may_end_where_the_next_begins(tmp_path):
    """Then the last one has no end, which is counted."""
    unclosed = (
        "{%- for m in messages -%}{{ '<|stop|>' if m.role == 'user' else '<|start|>' }}{{ m.content }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|start|>' }}{%- endif -%}"
    )
    tokenizer = merging_tokenizer(unclosed)
    dataset = dataset_of(tokenizer, [{"messages": CHAT[1:]}], tmp_path)
    assert learned(dataset.take([0])[0][0], tokenizer) == ["It is five.<|stop|>", "Six.\n\nGood day."]
    assert dataset.endless == 1
    assert dataset_of(merging_tokenizer(kinds.PLAIN), [{"messages": CHAT}], tmp_path).endless == 0


def test_prompt_and_response_columns_are_what_training_with_rewards_sees(tmp_path):
    row = {"question": "What is two plus three?", "solution": "It is five.", "answer": "5"}
    for template, end in ((kinds.PLAIN, "<|stop|>"), (kinds.HEADED, "<|stop|>"), (None, "<|eos|>")):
        tokenizer = merging_tokenizer(template)
        sft = SftConfig(response_key="solution")
        (sample,) = samples_of(tokenizer, [row], tmp_path, sft=sft, prompt_key="question")
        prompts = PromptDataset(str(tmp_path / "rows.jsonl"), DataConfig(prompt_key="question", **LONG), tokenizer)
        assert sample.prompt.ids == prompts[0].ids
        assert sample.ids == tokenizer("It is five." + end, add_special_tokens=False)["input_ids"]
        assert sample.mask == [1] * len(sample.ids)
        assert sample.prompt.extra == row


def test_a_response_template_sees_the_row(tmp_path):
    (tmp_path / "response.jinja").write_text("{{ content }} ({{ why }})")
    tokenizer = merging_tokenizer(kinds.PLAIN)
    sft = SftConfig(format_response=str(tmp_path / "response.jinja"))
    row = {"prompt": "What?", "response": "Five.", "why": "two, three"}
    (sample,) = samples_of(tokenizer, [row], tmp_path, sft=sft)
    assert learned(sample, tokenizer) == ["Five. (two, three)<|stop|>"]


def spacing_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that begins every text with a space, as SentencePiece does."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    words = ["[U] What is two plus three? [A] It is five.", "[U] And? [A] Six."] * 3
    tokenizer.train_from_iterator(
        words, trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>", "</s>"], show_progress=False)
    )
    template = (
        "{%- for m in messages -%}{{ '[U] ' + m.content + ' [A]' if m.role == 'user' else ' ' + m.content + '</s>' }}"
        "{%- endfor -%}"
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", chat_template=template)


def test_tokenizers_that_begin_texts_with_a_space_are_not_cut(tmp_path):
    tokenizer = spacing_tokenizer()
    chat = [CHAT[1], CHAT[2], {"role": "user", "content": "And?"}, {"role": "assistant", "content": "Six."}]
    (sample,) = samples_of(tokenizer, [{"messages": chat}], tmp_path)
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    assert sample.prompt.ids + sample.ids == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert sample.prompt.ids == seen_before_writing(tokenizer, chat[:1])
    assert [part.strip() for part in learned(sample, tokenizer)] == ["It is five.</s>", "Six.</s>"]
    cut = tokenizer(" Six.</s>", add_special_tokens=False)["input_ids"]
    assert sample.ids[-len(cut) :] != cut  # so that this test means something


WORD = st.text(alphabet="ab \n.?é猫", min_size=1, max_size=8).filter(str.strip)
TURNS = st.lists(st.tuples(WORD, WORD), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(turns=TURNS)
@pytest.mark.parametrize("template", [kinds.PLAIN, kinds.MARKED], ids=["plain", "marked"])
def test_what_is_learned_spells_what_the_assistant_said(tmp_path_factory, template, turns):
    chat = [{"role": role, "content": text} for pair in turns for role, text in zip(("user", "assistant"), pair)]
    tokenizer = merging_tokenizer(template)
    (sample,) = samples_of(tokenizer, [{"messages": chat}], tmp_path_factory.mktemp("chat"))
    assert learned(sample, tokenizer) == [f"{said}<|stop|>" for _, said in turns]
    assert sample.prompt.ids == seen_before_writing(tokenizer, chat[:1])
    whole = tokenizer.decode(sample.prompt.ids + sample.ids)
    assert whole == tokenizer.apply_chat_template(chat, tokenize=False).removesuffix("\n")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"messages": "hello"}, "must hold a chat"),
        ({"messages": []}, "must hold a chat"),
        ({"messages": CHAT[:2]}, "has no turn of the assistant's"),
        ({"messages": CHAT[2:]}, "begins with the assistant"),
        ({"messages": [CHAT[1], {"role": "assistant", "content": " "}]}, "turn 2 of the chat is empty"),
        ({"messages": [CHAT[1], {"from": "gpt", "value": "x"}]}, "turn 2 of the chat must be an object with role"),
        ({"messages": [CHAT[1], {"role": "assistant", "tool_calls": "add"}]}, "tool_calls must be a list"),
        ({"messages": CHAT, "tools": [1]}, "column 'tools' must hold a list of tools"),
        ({"prompt": "a", "completion": "b"}, "Did you mean sft.response_key=completion?"),
        ({"prompt": "a", "response": ""}, r"the response \(column 'response'\) is empty"),
        ({"text": "a"}, r"has neither a chat \(sft.messages_key=messages\) nor a prompt"),
        ({"messages": CHAT, "images": ["a.png"]}, "the model reads text only"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, expected):
    with pytest.raises(UserError, match=rf"(?s)rows.jsonl:2\b.*{expected}"):
        samples_of(merging_tokenizer(kinds.PLAIN), [{"messages": CHAT}, row], tmp_path)


def test_chats_need_a_chat_template(tmp_path):
    with pytest.raises(UserError, match="the tokenizer has no chat template"):
        samples_of(merging_tokenizer(None), [{"messages": CHAT}], tmp_path)


def test_long_rows_are_left_out_or_refused(tmp_path):
    tokenizer = merging_tokenizer(kinds.PLAIN)
    rows = [{"messages": CHAT}, {"messages": CHAT[:3]}]
    (long, short) = dataset_of(tokenizer, rows, tmp_path).lengths
    limits = {"max_prompt_length": 1, "max_response_length": short - 1}
    dataset = dataset_of(tokenizer, rows, tmp_path, **limits)
    assert dataset.lengths == [short]
    assert f"(1 of 2 left out: 1 longer than {short} tokens)" in dataset.summary()
    (row,) = dataset.take([0])
    assert len(row[0].prompt.ids) + len(row[0].ids) == short
    assert dataset.learned == sum(row[0].mask)
    with pytest.raises(UserError, match=rf"rows.jsonl:1 has {long} tokens, more than data.max_prompt_length \+"):
        dataset_of(tokenizer, rows, tmp_path, filter_overlong_prompts=False, **limits)
    with pytest.raises(UserError, match="all 2 rows are longer"):
        dataset_of(tokenizer, rows, tmp_path, max_prompt_length=1, max_response_length=1)
