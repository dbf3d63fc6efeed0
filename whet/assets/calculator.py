"""The built-in `whet/calculator`: questions such as "What is 37 times 48?", answered with a calculator tool.

A model of this size cannot multiply. It can write a call as Hermes and Qwen do, read the result and repeat it. This
file makes the rows, the chat template, and the demonstrations of the warm start, of which few do all of that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast

from whet.assets.folder import shipped_tokenizer, write_folder
from whet.assets.quickstart import make_config
from whet.assets.tokenizer import ASSISTANT, END, SYSTEM, USER, with_chat_template

SEED = 1
TRAIN_ROWS, TEST_ROWS = 2000, 200
SIGNS = {"plus": "+", "minus": "-", "times": "*"}
NUMBERS = range(10, 100)
TOOL = "<|tool|>"  # the role of results, a token like the other roles

# How demonstrators answer, and how often. Only the first do well: the others answer from nowhere without a call, call
# with another sign, or pay no attention to the result.
HABITS = {"calls": 0.12, "guesses": 0.48, "wrong sign": 0.2, "ignores": 0.2}

CHAT_TEMPLATE = (
    "{%- if tools -%}{{ '<|system|>Tools:' }}"
    "{%- for tool in tools -%}{{ ' ' + tool['function']['name'] }}{%- endfor -%}{{ '<|end|>' }}{%- endif -%}"
    "{%- for message in messages -%}"
    "{{ '<|' + message['role'] + '|>' + (message['content'] or '') }}"
    "{%- for call in message['tool_calls'] or [] -%}"
    """{{ '<tool_call>{"name": "' + call['function']['name'] + '", "arguments": ' }}"""
    "{{ call['function']['arguments'] | tojson }}{{ '}</tool_call>' }}"
    "{%- endfor -%}{{ '<|end|>' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


class Question(NamedTuple):
    """One question."""

    left: int
    word: str
    right: int

    @property
    def text(self) -> str:
        """The question as the policy reads it."""
        return f"What is {self.left} {self.word} {self.right}?"

    def value(self, word: str = "") -> int:
        """Return the answer, or what another sign would give."""
        left, right = self.left, self.right
        return {"plus": left + right, "minus": left - right, "times": left * right}[word or self.word]


def row(question: Question) -> dict[str, str]:
    """Return one row of the data files."""
    return {"prompt": question.text, "answer": str(question.value())}


def draw(rng: Random) -> Question:
    """Return a question at random."""
    return Question(rng.choice(NUMBERS), rng.choice(list(SIGNS)), rng.choice(NUMBERS))


def splits(seed: int) -> tuple[list[Question], list[Question]]:
    """Return the questions of the training and the test rows, all different."""
    rng, different = Random(seed), dict[Question, None]()
    while len(different) < TRAIN_ROWS + TEST_ROWS:
        different[draw(rng)] = None
    questions = list(different)
    return questions[TEST_ROWS:], questions[:TEST_ROWS]


def written_call(question: Question, word: str) -> str:
    """Return a call with the sign of `word`, as the chat template writes it."""
    arguments = {"expression": f"{question.left}{SIGNS[word]}{question.right}"}
    return f"<tool_call>{json.dumps({'name': 'calculator', 'arguments': arguments})}</tool_call>"


def head(question: Question) -> str:
    """Return what stands before the policy's first turn."""
    return f"{SYSTEM}Tools: calculator{END}{USER}{question.text}{END}{ASSISTANT}"


def demonstrate(rng: Random, question: Question) -> list[tuple[str, str]]:
    """Return the turns of a demonstrator, each with what stands between it and the next; "" behind the last."""
    (habit,) = rng.choices(list(HABITS), list(HABITS.values()))
    anything = draw(rng).value()
    if habit == "guesses":
        return [(str(anything), "")]
    word = question.word
    if habit == "wrong sign":
        word = rng.choice([other for other in SIGNS if other != word])
    result = str(question.value(word))
    answer = str(anything) if habit == "ignores" else result
    return [(written_call(question, word), f"{TOOL}{result}{END}{ASSISTANT}"), (answer, "")]


def demonstrations(seed: int) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield episodes without end, none about a question of the test rows."""
    rng, hidden = Random(seed), set(splits(seed)[1])
    while True:
        question = draw(rng)
        if question not in hidden:
            yield head(question), demonstrate(rng, question)


def with_tools(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Give a tokenizer the chat template with tools, in place."""
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_calculator(folder: Path, say: Callable[[str], None]) -> None:
    """Write `train.jsonl`, `test.jsonl` and the Hugging Face folder `model/` under `folder`."""
    for name, questions in zip(("train", "test"), splits(SEED), strict=True):
        text = "".join(json.dumps(row(question)) + "\n" for question in questions)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    tokenizer = with_tools(with_chat_template(shipped_tokenizer("calculator")))
    write_folder("calculator", make_config(tokenizer), tokenizer, folder / "model")
