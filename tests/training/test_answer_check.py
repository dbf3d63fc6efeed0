"""The question put to the reward function at the start: does a row's own answer score more than a wrong response."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from whet.config.schema.reward import RewardConfig
from whet.doctor.findings import Finding
from whet.rewards.scorer import RewardScorer
from whet.training import answer_check
from whet.training.answer_check import answer_text, check_answers
from whet.types import Prompt


def examine(folder: Path, body: str, *answers: Any, batch: bool = False) -> Finding | None:
    """Check a reward function with this body against rows with these answers."""
    (folder / "reward.py").write_text(f"import re, time\n\ndef main(x):\n    {body}\n")
    prompts = [Prompt(f"rows:{i}", [1], "a question", answer=answer) for i, answer in enumerate(answers)]
    config = RewardConfig(num_cpus=1, timeout=5, reward_type="batch" if batch else "sequential")
    with RewardScorer(str(folder / "reward.py:main"), config, warn=pytest.fail) as scorer:
        return check_answers(scorer, prompts)


EXACT = "return float(x['response'] == x['ground_truth'])"
BOXED = r"return float(re.findall(r'boxed{(.*)}', x['response']) == [x['ground_truth']])"
NEVER = "return {'overall': 0.1 if x['response'] else 0.0, 'accuracy': 0.0}"  # a score for form, none for being right


@pytest.mark.parametrize("body", [EXACT, BOXED])
def test_a_function_that_finds_the_answer_in_some_form_is_fine(tmp_path: Path, body: str) -> None:
    assert examine(tmp_path, body, "42", "43") is None


def test_a_function_that_never_finds_it_is_reported_with_a_row(tmp_path: Path) -> None:
    finding = examine(tmp_path, NEVER, "42", "43")
    assert finding is not None
    assert (finding.rule, finding.step) == ("answers", 0)
    assert "row rows:0, answer '42'" in finding.sentence
    assert "data.answer_key" in finding.sentence


def test_one_row_that_scores_is_enough(tmp_path: Path) -> None:
    assert examine(tmp_path, "return float(x['ground_truth'] == '43' and '43' in x['response'])", "42", "43") is None


def test_functions_that_take_batches_are_asked_too(tmp_path: Path) -> None:
    body = "return [{'overall': float(each['ground_truth'] in each['response'])} for each in x]"
    assert examine(tmp_path, body, "42", batch=True) is None
    assert examine(tmp_path, "return [{'overall': 0.0} for each in x]", "42", batch=True) is not None


def test_a_function_that_raises_or_takes_long_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine(tmp_path, "raise ValueError('no')", "42") is None
    monkeypatch.setattr(answer_check, "SECONDS", 0.5)
    began = time.monotonic()
    assert examine(tmp_path, "time.sleep(3)", "42", "43") is None
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("42", "42"),
        (42, "42"),
        (["right", "also right"], "right"),
        ("x = {1}", "x = {1}"),
        (None, None),
        ("", None),
        (True, None),
        ({"target": "42"}, None),
        ('{"inputs": ["1"], "outputs": ["2"]}', None),
        ("a" * 5000, None),
    ],
)
def test_answers_that_a_response_can_state(answer: Any, text: str | None) -> None:
    assert answer_text(answer) == text


def test_rows_without_answers_are_left_alone(tmp_path: Path) -> None:
    assert examine(tmp_path, "return 0.0", None, {"a": 1}) is None
