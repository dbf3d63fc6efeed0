"""`whet eval` on LiveCodeBench's format: programs of a file of responses, hidden tests, avg@k and pass@k."""

from __future__ import annotations

import base64
import json
import pickle
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whet_process import write_rows

from whet.evals.questions import arrange
from whet.evals.registry import BUILT_IN

Run = Callable[..., str]
RIGHT = "I square it.\n```python\nprint(int(input()) ** 2)\n```"
PUBLIC_ONLY = "```python\nprint(9)\n```"
METHOD = "```python\nclass Solution:\n    def square(self, x):\n        return x * x\n```"


def packed(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def problem(kind: str, difficulty: str) -> dict[str, Any]:
    """A row in the columns of code_generation_lite."""
    metadata = {"func_name": "square"} if kind == "functional" else {}
    return {
        "question_title": kind,
        "question_content": f"Square a number ({kind}).",
        "platform": "leetcode" if kind == "functional" else "atcoder",
        "question_id": kind,
        "contest_id": "1",
        "contest_date": "2024-09-01T00:00:00",
        "starter_code": "class Solution:\n    def square(self, x: int) -> int:\n" if metadata else "",
        "difficulty": difficulty,
        "public_test_cases": json.dumps([{"input": "3", "output": "9", "testtype": kind}]),
        "private_test_cases": packed([{"input": str(n), "output": str(n * n), "testtype": kind} for n in (4, 10)]),
        "metadata": json.dumps(metadata),
    }


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox needs Linux")
def test_programs_are_judged_by_hidden_tests(whet: Run, here: Path) -> None:
    stdin, functional = problem("stdin", "easy"), problem("functional", "hard")
    rows = [
        {**stdin, "uid": "a", "response": [RIGHT, PUBLIC_ONLY, RIGHT, "no program"]},
        {**functional, "uid": "b", "response": [METHOD, RIGHT, PUBLIC_ONLY, ""]},
    ]
    write_rows(here / "said.jsonl", rows)
    whet("eval", "eval.responses=said.jsonl", "eval.datasets=[livecodebench]", "eval.output=out")
    found = json.loads(Path("out/report.json").read_text())["datasets"]["livecodebench"]
    means = {name: each["mean"] for name, each in found["metrics"].items()}
    assert means["avg@4"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert means["pass@1"] == pytest.approx(means["avg@4"])
    # 1 - C(n - c, k) / C(n, k): 2 of 4 right → 1 - 1/6; 1 of 4 → 1 - 3/6.
    assert means["pass@2"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert means["pass@4"] == 1.0
    assert found["metrics"]["avg@4"]["low"] <= means["avg@4"] <= found["metrics"]["avg@4"]["high"]
    assert found["by"]["difficulty"]["hard"]["metrics"]["avg@4"]["mean"] == 0.25
    said = [json.loads(line) for line in Path("out/livecodebench/samples.jsonl").read_text().splitlines()]
    assert [each["correct"] for each in said] == [1, 0, 1, 0, 1, 0, 0, 0]


def test_tests_are_the_answer_and_never_in_the_question(here: Path) -> None:
    from whet.cli import examples_folder
    from whet.config import load_config
    from whet.data.files import Table
    from whet.data.template import PromptTemplate

    config = load_config(["eval.datasets=[livecodebench]"])
    row = problem("functional", "hard")
    questions = arrange(config, examples_folder(), BUILT_IN["livecodebench"], [Table("lcb.jsonl", [row])])
    (question,) = questions.by_uid.values()
    assert question.truth.answer["private_test_cases"] == row["private_test_cases"]
    assert questions.data.prompt_key == "question_content"
    template = PromptTemplate(Path(questions.data.format_prompt or ""))
    asked = template.render(row["question_content"], question.row, question.uid)
    assert "def square(self, x: int)" in asked
    assert row["private_test_cases"] not in asked
