"""The built-in calculator task: rows, demonstrations, and a chat template that writes calls as the model does."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from whet.assets import builtin
from whet.assets.calculator import SEED, SIGNS, Question, demonstrations, head, row, splits, written_call
from whet.assets.tokenizer import ASSISTANT, END
from whet.chat.calls.registry import detect, parser
from whet.chat.messages import assistant_message, tool_message
from whet.chat.turns import TurnTemplate
from whet.model.load import load_tokenizer
from whet.tools.builtin.calculator import TOOL, compute


def test_rows_are_true_and_test_rows_are_new() -> None:
    train, test = splits(SEED)
    assert not set(train) & set(test)
    for question in test:
        expression = f"{question.left}{SIGNS[question.word]}{question.right}"
        assert row(question) == {"prompt": question.text, "answer": str(compute(expression))}


def test_few_demonstrators_do_well() -> None:
    shown, well, called = 2000, 0, 0
    hidden = {head(question) for question in splits(SEED)[1]}
    for text, turns in islice(demonstrations(SEED), shown):
        assert text not in hidden
        left, word, right = text.split("What is ")[1].split("?")[0].split()
        answer = Question(int(left), word, int(right)).value()
        called += len(turns) == 2
        well += turns[-1] == (str(answer), "")
        for call, between in turns[:-1]:
            (made,) = parser("hermes")(call).calls
            assert between == f"<|tool|>{compute(made.arguments['expression'])}{END}{ASSISTANT}"
    assert 0.09 < well / shown < 0.16
    assert 0.45 < called / shown < 0.6


def test_the_template_writes_what_the_warm_start_showed(whet_home: Path) -> None:
    tokenizer = load_tokenizer(str(builtin("whet/calculator", print) / "model"))
    assert detect(tokenizer.chat_template) == "hermes"
    template = TurnTemplate(tokenizer, [TOOL.schema])
    question = Question(37, "times", 48)
    asked = [{"role": "user", "content": question.text}]
    assert template.prompt(asked) == tokenizer(head(question))["input_ids"]
    written = tokenizer(written_call(question, "times") + END)["input_ids"]
    (call,) = parser("hermes")(written_call(question, "times")).calls
    added = template.append([*asked, assistant_message("", None, [call])], written, [tool_message(call, "1776")])
    assert not added.rewritten
    assert added.ids == tokenizer(f"<|tool|>1776{END}{ASSISTANT}")["input_ids"]
    assert all(
        tokenizer(str(number))["input_ids"] == tokenizer.convert_tokens_to_ids(list(str(number)))
        for number in (7, 42, 1776)
    )
