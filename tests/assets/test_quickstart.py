"""The quickstart: its files, its tokenizer, and what the warm start did and did not teach."""

import importlib.util
import json
from pathlib import Path

import jinja2
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from whet.assets import digits

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_reward():
    spec = importlib.util.spec_from_file_location("reward", EXAMPLES / "reward_function" / "quickstart.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compute_score


@pytest.fixture(scope="module")
def tokenizer(quickstart):
    return AutoTokenizer.from_pretrained(quickstart / "model", padding_side="left")


@pytest.fixture(scope="module")
def rows(quickstart):
    return [json.loads(line) for line in (quickstart / "test.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def scores(quickstart, tokenizer, rows):
    """Scores of four samples for each test row, from the model as the warm start left it."""
    template = jinja2.Template((EXAMPLES / "format_prompt" / "quickstart.jinja").read_text())
    chats = [[{"role": "user", "content": template.render(content=row["problem"])}] for row in rows]
    texts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
    inputs = tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
    model = AutoModelForCausalLM.from_pretrained(quickstart / "model")
    torch.manual_seed(1)
    output = model.generate(**inputs, max_new_tokens=16, temperature=1.0, top_k=0, num_return_sequences=4)
    replies = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    pairs = [{"response": reply, "ground_truth": rows[i // 4]["answer"]} for i, reply in enumerate(replies)]
    return load_reward()(pairs)


def mean(scores, name):
    return sum(score[name] for score in scores) / len(scores)


def test_files_hold_the_rows(quickstart, rows):
    train = (quickstart / "train.jsonl").read_text().splitlines()
    assert len(train) == digits.TRAIN_ROWS
    assert len(rows) == digits.TEST_ROWS
    assert not {json.loads(line)["problem"] for line in train} & {row["problem"] for row in rows}


def test_tokenizer_writes_any_text_back(tokenizer):
    for text in ("Answer: 1 2 5 7 9", 'Sort these digits: 5 2\nBegin with "Answer:"', "naïve 東京 🙂\t 12.5"):
        assert tokenizer.decode(tokenizer.encode(text), clean_up_tokenization_spaces=False) == text


def test_every_digit_is_one_token(tokenizer):
    assert [len(tokenizer.encode(f"Answer:{' 7' * n}")) for n in (1, 2, 7)] == [3, 4, 9]


def test_chat_template_has_turns_and_ends_them(tokenizer):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == "<|system|>Be brief.<|end|><|user|>Hi<|end|><|assistant|>"
    ids = tokenizer.encode(text)
    assert ids.count(tokenizer.eos_token_id) == 2
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Be brief.Hi"
    assert tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)


def test_template_of_the_example_is_what_the_warm_start_showed():
    template = jinja2.Template((EXAMPLES / "format_prompt" / "quickstart.jinja").read_text())
    problem = digits.row((3, 1, 2))["problem"]
    assert template.render(content=problem) == problem + digits.INSTRUCTION


def test_warm_start_knows_the_form_and_leaves_the_rest_to_reinforcement_learning(scores):
    assert mean(scores, "format") > 0.8
    assert 0.10 < mean(scores, "accuracy") < 0.27
    groups = [scores[i : i + 4] for i in range(0, len(scores), 4)]
    solved_once = sum(max(score["accuracy"] for score in group) for group in groups) / len(groups)
    assert solved_once > 0.3, "GRPO learns from groups in which some sample is right"


def test_reward_wants_digits_and_form():
    cases = {"Answer: 1 2 5": (1, 1), "Answer: 5 2 1": (0, 1), "1 2 5": (0, 0), "Answer: 1 2 5 and": (0, 0), "": (0, 0)}
    found = load_reward()([{"response": response, "ground_truth": "1 2 5"} for response in cases])
    assert [(score["accuracy"], score["format"]) for score in found] == list(cases.values())
    assert [score["overall"] for score in found] == pytest.approx([1.0, 0.1, 0.0, 0.0, 0.0])
