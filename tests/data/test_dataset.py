from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whet.config.schema.data import DataConfig
from whet.data.dataset import PromptDataset
from whet.errors import UserError

GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"
QUESTION = "what is one plus two ?"
USER_TURN = {"role": "user", "content": QUESTION}


@pytest.fixture
def dataset(jsonl, chat_tokenizer):
    def build(rows, tokenizer=chat_tokenizer, **keys):
        return PromptDataset(str(jsonl(rows)), DataConfig(**keys), tokenizer)

    return build


def test_plain_text_becomes_a_user_turn(dataset, chat_tokenizer):
    prompts = dataset([{"prompt": QUESTION, "answer": "three", "level": 1}])
    (prompt,) = prompts
    assert prompt.uid == "train.jsonl:1"
    assert prompt.text == f"user : {QUESTION} | assistant :"
    assert chat_tokenizer.decode(prompt.ids) == prompt.text
    expected = chat_tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], add_generation_prompt=True)
    assert prompt.ids == expected["input_ids"]
    assert prompt.answer == "three"
    assert prompt.extra == {"prompt": QUESTION, "answer": "three", "level": 1}
    assert prompt.media is None
    assert prompts.lengths == [len(prompt.ids)]


def test_without_chat_template_the_text_is_encoded_as_it_is(dataset, plain_tokenizer):
    (prompt,) = dataset([{"prompt": QUESTION, "answer": ""}], plain_tokenizer)
    assert prompt.text == QUESTION
    assert prompt.ids == plain_tokenizer(QUESTION)["input_ids"]
    assert prompt.ids[0] == plain_tokenizer.bos_token_id


def test_a_chat_keeps_its_system_turn_and_joins_its_parts(dataset):
    chat = [
        {"role": "system", "content": "think"},
        {"role": "user", "content": [{"type": "text", "text": "what is "}, {"type": "text", "text": "one ?"}]},
    ]
    (prompt,) = dataset([{"prompt": chat, "answer": 1}])
    assert prompt.text == "system : think | user : what is one ? | assistant :"
    assert prompt.extra["prompt"] == chat


def test_the_template_rewrites_the_last_user_turn(dataset, tmp_path):
    (tmp_path / "t.jinja").write_text("think : {{ content }} {{ unit }}\n")
    chat = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "what ?"},
    ]
    rows = [{"prompt": chat, "answer": 1, "unit": "two"}, {"prompt": "one ?", "answer": 1, "unit": "plus"}]
    first, second = dataset(rows, format_prompt=str(tmp_path / "t.jinja"))
    assert first.text == "user : one | assistant : two | user : think : what ? two | assistant :"
    assert second.text == "user : think : one ? plus | assistant :"
    assert first.extra["prompt"][2]["content"] == "what ?"


def test_what_is_odd_about_rows_is_said(dataset, tmp_path):
    rows = [{"prompt": QUESTION, "answer": each} for each in ("one", None, float("nan"), "")]
    assert dataset(rows).summary().endswith("; 3 without an answer (data.answer_key=answer), such as train.jsonl:2")
    (tmp_path / "t.jinja").write_text("one ?")
    assert "all read the same" in dataset(rows[:1] * 2, format_prompt=str(tmp_path / "t.jinja")).summary()
    for text, message in (("", "is empty"), ("{% if hint is defined %}x{% endif %}", "writes nothing for this row")):
        (tmp_path / "t.jinja").write_text(text)
        with pytest.raises(UserError, match=message):
            dataset(rows, format_prompt=str(tmp_path / "t.jinja"))


@pytest.mark.parametrize("left", ["prompt", "answer"])
def test_a_row_that_lacks_what_others_have(dataset, left):
    rows = [{"prompt": QUESTION, "answer": "one", "level": 1}] * 2 + [{"level": 1} | {left: "one"}]
    with pytest.raises(UserError, match=r"train\.jsonl:3 has no such column, other rows have"):
        dataset(rows)


def test_the_prompt_is_not_taken_for_the_answer(dataset):
    with pytest.raises(UserError, match=r"Did you mean data\.answer_key=answer\?"):
        dataset([{"question": QUESTION, "answer": 1}], prompt_key="question", answer_key="solution")


def test_verl_parquet(tmp_path, chat_tokenizer):
    row = {
        "data_source": "gsm8k",
        "prompt": [{"role": "user", "content": QUESTION, "name": None}],
        "reward_model": {"style": "rule", "ground_truth": "3"},
        "extra_info": {"index": 7},
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "train.parquet")
    config = DataConfig(answer_key="reward_model.ground_truth")
    (prompt,) = PromptDataset(str(tmp_path / "train.parquet"), config, chat_tokenizer)
    assert prompt.answer == "3"
    assert prompt.extra["data_source"] == "gsm8k"
    assert prompt.extra["extra_info"] == {"index": 7}
    with pytest.raises(UserError, match=r"Did you mean data\.answer_key=reward_model\.ground_truth"):
        PromptDataset(str(tmp_path / "train.parquet"), DataConfig(), chat_tokenizer)


@pytest.mark.parametrize("as_file", [True, False])
def test_override_chat_template(dataset, plain_tokenizer, tmp_path, as_file):
    template = "{% for m in messages %}{{ m.content }} | {% endfor %}"
    (tmp_path / "chat.jinja").write_text(template)
    override = str(tmp_path / "chat.jinja") if as_file else template
    (prompt,) = dataset([{"prompt": "one ?", "answer": 1}], plain_tokenizer, override_chat_template=override)
    assert prompt.text == "one ? | "
    assert prompt.ids[0] != plain_tokenizer.bos_token_id


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("no_such_file.jinja", r"data\.override_chat_template: 'no_such_file\.jinja' is neither"),
        (__file__.replace("test_dataset.py", ""), "is neither"),
        ("{% if %}", r"data\.override_chat_template is not valid Jinja \(line 1"),
        (
            "{{ raise_exception('only alternate') if messages[0].content == 'two' }}",
            r"train\.jsonl:2: .*only alternate",
        ),
    ],
)
def test_bad_chat_template(dataset, override, message):
    with pytest.raises(UserError, match=message):
        dataset([{"prompt": "one", "answer": 1}, {"prompt": "two", "answer": 1}], override_chat_template=override)


def test_variables_of_the_chat_template(dataset):
    template = "{{ messages[0].content }} {{ 'think' if thinks else 'answer' }}"
    rows = [{"prompt": QUESTION, "answer": ""}]
    texts = [
        dataset(rows, override_chat_template=template, chat_template_args=given)[0].text
        for given in ({}, {"thinks": True}, {"thinks": False})
    ]
    assert texts == [f"{QUESTION} answer", f"{QUESTION} think", f"{QUESTION} answer"]


def test_the_first_rows_of_all_files(jsonl, chat_tokenizer):
    files = f"{jsonl([{'prompt': QUESTION, 'answer': str(i)} for i in range(3)])}," * 2
    for most, answers in ((None, "012012"), (2, "01"), (4, "0120"), (9, "012012")):
        read = PromptDataset(files.rstrip(","), DataConfig(max_train_rows=most, max_val_rows=1), chat_tokenizer)
        assert "".join(prompt.answer for prompt in read) == answers
    assert len(PromptDataset(files.rstrip(","), DataConfig(max_val_rows=1), chat_tokenizer, "data.val_files")) == 1


def test_overlong_prompts_are_left_out_and_counted(dataset):
    rows = [{"prompt": "one " * n, "answer": n} for n in (1, 30, 2, 40)]
    prompts = dataset(rows, max_prompt_length=10)
    assert [prompt.uid for prompt in prompts] == ["train.jsonl:1", "train.jsonl:3"]
    assert [prompt.answer for prompt in prompts] == [1, 2]
    assert prompts.rows_read == 4
    assert prompts.summary() == "2 prompts of 6 to 7 tokens (2 of 4 left out: longer than 10 tokens)"


def test_a_prompt_of_exactly_the_limit_stays(dataset):
    assert len(dataset([{"prompt": "one", "answer": 1}], max_prompt_length=6, filter_overlong_prompts=False)) == 1


def test_overlong_prompts_are_refused_when_not_filtered(dataset):
    rows = [{"prompt": "one " * n, "answer": n} for n in (1, 30, 40)]
    with pytest.raises(UserError, match=r"train\.jsonl:3 has 45 tokens, .*max_prompt_length=10 \(2 of 3"):
        dataset(rows, max_prompt_length=10, filter_overlong_prompts=False)


@pytest.mark.parametrize("filtering", [True, False])
def test_all_prompts_too_long(dataset, filtering):
    rows = [{"prompt": "one " * n, "answer": n} for n in (20, 30)]
    with pytest.raises(
        UserError, match=r"all 2 prompts are longer than data\.max_prompt_length=10: they have 25 to 35"
    ):
        dataset(rows, max_prompt_length=10, filter_overlong_prompts=filtering)


@pytest.mark.parametrize(
    ("rows", "keys", "message"),
    [
        ([{"question": "x", "answer": 1}], {}, r"data\.prompt_key=prompt: train\.jsonl:1 .*question, answer.*=ques"),
        ([{"problem": "x", "answer": 1}], {"prompt_key": "problme"}, r"data\.prompt_key=problem\?"),
        ([{"prompt": "x", "solution": 1}], {}, r"data\.answer_key=answer: .*Did you mean data\.answer_key=solution"),
        ([{"prompt": "x", "zzz": 1}], {}, r"Set data\.answer_key to one of them"),
        ([{"prompt": "x", "answer": 1}, {"prompt": "y"}], {}, r"data\.answer_key=answer: train\.jsonl:2"),
        ([{"prompt": "x", "a": None}], {"answer_key": "a.b"}, r"data\.answer_key=a\.b: train\.jsonl:1"),
        ([{"prompt": "x", "answer": 1}, {"prompt": " ", "answer": 1}], {}, r"train\.jsonl:2: the prompt .* is empty"),
        ([{"prompt": None, "answer": 1}], {}, r"train\.jsonl:1: the prompt .* is empty"),
        ([{"prompt": [], "answer": 1}], {}, r"train\.jsonl:1: the prompt .* is empty"),
        ([{"prompt": 5, "answer": 1}], {}, r"train\.jsonl:1: the prompt .* is a number"),
        ([{"prompt": ["x"], "answer": 1}], {}, r"train\.jsonl:1: turn 1 .* role and content"),
        ([{"prompt": [{"role": "user", "content": ""}], "answer": 1}], {}, r"turn 1 of the chat is empty"),
        ([{"prompt": [{"role": "user", "content": 4}], "answer": 1}], {}, r"turn 1: content must be text"),
        ([{"prompt": [{"role": "user", "content": ["x"]}], "answer": 1}], {}, r"each part of the content"),
        ([{"prompt": [{"role": "user", "content": [{"type": "image"}]}], "answer": 1}], {}, r"an image.* text only"),
        ([{"prompt": [{"role": "system", "content": "x"}], "answer": 1}], {}, r"no turn with the role user"),
        ([{"prompt": [USER_TURN, {"role": "assistant", "content": "y"}], "answer": 1}], {}, r"ends with an assistant"),
        ([{"prompt": "x", "answer": 1, "images": ["a.png"]}], {}, r":1: column 'images' .*text only.*vision-language"),
        ([{"prompt": "x", "answer": 1, "clip": "a.mp4"}], {"video_key": "clip"}, r"column 'clip'"),
        ([{"prompt": "x", "answer": 1}], {"format_prompt": "no.jinja"}, r"data\.format_prompt: .*no\.jinja"),
    ],
)  # fmt: skip
def test_bad_rows(dataset, rows, keys, message):
    with pytest.raises(UserError, match=message):
        dataset(rows, **keys)


def test_a_chat_needs_a_chat_template(dataset, plain_tokenizer):
    one_turn = {"prompt": [{"role": "user", "content": "one ?"}], "answer": 1}
    assert dataset([one_turn], plain_tokenizer)[0].text == "one ?"
    chat = [{"role": "system", "content": "think"}, {"role": "user", "content": "one ?"}]
    with pytest.raises(UserError, match=r"train\.jsonl:1: .*2 turns.*data\.override_chat_template"):
        dataset([{"prompt": chat, "answer": 1}], plain_tokenizer)


def test_a_prompt_the_tokenizer_makes_nothing_of(dataset):
    with pytest.raises(UserError, match=r"train\.jsonl:1: the prompt has no tokens"):
        dataset([{"prompt": "one", "answer": 1}], override_chat_template="{% if false %}{% endif %}")


def test_empty_image_columns_and_null_answers_are_fine(dataset):
    (prompt,) = dataset([{"prompt": "one", "answer": None, "images": [], "videos": None}])
    assert prompt.answer is None


def test_paths_go_through_resolve(jsonl, chat_tokenizer, tmp_path):
    jsonl([{"prompt": "one", "answer": 1}])
    (tmp_path / "t.jinja").write_text("{{ content }} two")
    config = DataConfig(format_prompt="t.jinja")
    prompts = PromptDataset("train.jsonl", config, chat_tokenizer, resolve=lambda name: tmp_path / name)
    assert prompts[0].text == "user : one two | assistant :"


@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not beside the repository")
def test_gsm8k_is_read_and_measured_quickly(chat_tokenizer, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ content }} think :")
    config = DataConfig(prompt_key="question", format_prompt=str(tmp_path / "t.jinja"))
    start = time.process_time()
    prompts = PromptDataset(f"{GSM8K}@train", config, chat_tokenizer)
    assert time.process_time() - start < 10
    assert len(prompts) == 7473
    last = prompts[7472]
    assert last.uid == "train.jsonl:7473"
    assert last.answer == last.extra["answer"]
    assert len(last.ids) == prompts.lengths[7472]
