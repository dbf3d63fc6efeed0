"""`python tools/parity.py scorers.json`: cases of reward functions agree, differ on purpose with a reason, or fail."""

# ruff: noqa: E501

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parity import main

CASES: list[dict[str, Any]] = [
    {"system": "verl", "scorer": "gsm8k", "response": "#### 72", "ground_truth": "72", "result": 1.0, "correct": True},
    {"system": "verl", "scorer": "gsm8k", "response": "#### $72", "ground_truth": "72", "result": 0, "correct": True},
    {"system": "verl", "scorer": "math_reward", "response": "\\boxed{0.75}", "ground_truth": "\\frac{3}{4}", "result": 0.0, "correct": True},
    {"system": "verl", "scorer": "math_dapo", "response": "nothing", "ground_truth": "[INVALID]", "result": {"score": 1.0, "acc": True, "pred": "[INVALID]"}, "correct": False},
    {"system": "verl", "scorer": "math_dapo", "response": "Answer: 4", "ground_truth": 4, "raises": "AttributeError", "correct": None},
    {"system": "verl", "scorer": "prime_math", "response": "\\boxed{len('abcdefg')+0\\pi}", "ground_truth": "7", "result": [True, False, "len('abcdefg')+0\\pi"], "correct": False},
    {"system": "easyr1", "scorer": "android_gui", "response": "10", "ground_truth": "1", "result": {"overall": 1.0, "accuracy": 1.0}, "correct": False},
    {"system": "vqa", "scorer": "vqa_accuracy", "response": "Yes", "ground_truth": ["yes"] * 10, "result": 0.0, "correct": None},
    {"system": "verl", "scorer": "default_compute_score", "data_source": "unknown/set", "response": "4", "ground_truth": "4", "raises": "NotImplementedError", "correct": None},
]  # fmt: skip


def report(cases: list[dict[str, Any]], folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    file = folder / "scorers.json"
    full = [{"data_source": None, "extra": {}, "id": f"case.{at}", **case} for at, case in enumerate(cases)]
    file.write_text(json.dumps({"meta": {}, "cases": full}))
    code = main([str(file)])
    return code, capsys.readouterr().out.splitlines()


def test_cases_agree_or_differ_with_a_reason(tmp_path, capsys):
    code, (*lines, summary) = report(CASES, tmp_path, capsys)
    assert code == 0
    assert lines[0].endswith("  ok")
    assert "the original misses a right answer" in lines[1]
    assert "the original misses a right answer" in lines[2]
    assert "the original pays for a wrong answer" in lines[3]
    assert "the original raises: AttributeError" in lines[4]
    assert "differs on purpose" in lines[5]
    assert "the original pays for a wrong answer" in lines[6]
    assert "open to argument" in lines[7]
    assert "the original raises: NotImplementedError; whet refuses" in lines[8]
    assert summary.endswith(" 0 fail")


@pytest.mark.parametrize(("change", "note"), [
    ({"result": 0.5}, "FAILS: verl gives 0.5"), ({"scorer": "unheard"}, "NOT COVERED"), ({"ground_truth": "7", "result": 0.0, "response": "#### 7.0"}, "FAILS"),
])  # fmt: skip
def test_what_does_not_agree_fails(change, note, tmp_path, capsys):
    if note == "FAILS":
        change = {**change, "correct": False}
    code, (line, summary) = report([CASES[0] | change], tmp_path, capsys)
    assert code == 1
    assert note in line
    assert summary.endswith(" 1 fail")
