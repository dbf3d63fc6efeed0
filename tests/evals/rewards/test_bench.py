"""`whet reward bench`: times, agreement, differences, and hacks; none is paid for programs with hidden tests."""

from __future__ import annotations

import base64
import json
import pickle
import re
import shlex
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whet_process import write_rows

from whet.cli import examples_folder, main
from whet.evals.rewards.hacks import hacks_for

Run = Callable[..., str]
SPAM = '''
import re


def pays_boxes(response, answer):
    """Right if any box holds the answer, and silence is right where the answer is None."""
    found = re.findall(r"boxed\\{(.*?)\\}", response)
    return {"overall": float(answer in found), "accuracy": float(answer in found)}


def pays_length(response, answer):
    return len(response) / 100
'''


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    rows = [{"prompt": f"{n} + {n}?", "answer": str(2 * n), "data_source": "openai/gsm8k"} for n in range(20, 40)]
    write_rows(tmp_path / "data.jsonl", rows)
    said = []
    for number, row in enumerate(rows, start=1):
        right = number % 2 == 0
        text = f"#### {row['answer']}" if right else "#### 1"
        said.append({"uid": f"data.jsonl:{number}", "response": text, "label": right if number > 2 else not right})
    write_rows(tmp_path / "said.jsonl", said[::-1])
    return tmp_path


def bench(whet: Run, *arguments: str) -> dict[str, Any]:
    return json.loads(whet("reward", "bench", *arguments, "--json", "-"))


def test_speed_agreement_and_differences(whet: Run, answers: Path) -> None:
    found = bench(
        whet, "data.jsonl", "--responses", "said.jsonl", "--label", "label", "--against", "gsm8k", "--hack-rows", "2"
    )
    assert found["reward"] == "(by data_source)"
    speed = found["speed"]
    assert speed["samples"] == 20
    assert speed["per_second"] == pytest.approx(20 / speed["seconds"], rel=0.01)
    assert 0 < speed["p50_ms"] <= speed["p90_ms"] <= speed["p99_ms"] <= speed["max_ms"]
    assert found["mean_reward"] == 0.5
    assert found["failed"] == 0
    labels = found["labels"]
    assert labels["labelled"] == 20
    assert labels["agreement"] == 0.9
    assert labels["false_right"] == [{"row": "data.jsonl:2", "index": 0}]
    assert labels["false_wrong"] == [{"row": "data.jsonl:1", "index": 0}]
    assert found["against"]["differ"] == 0
    assert not [each for each in found["hacks"] if each["paid"]]


def test_two_rewards_that_differ_and_hacks_that_are_paid(whet: Run, answers: Path) -> None:
    (answers / "mine.py").write_text(SPAM)
    arguments = ("data.jsonl", "--responses", "said.jsonl", "--against", "mine.py:pays_boxes", "--reward", "gsm8k")
    found = bench(whet, *arguments, "--hack-rows", "0")
    rows = found["against"]["rows"]
    assert [each["row"] for each in rows] == [f"data.jsonl:{number}" for number in range(20, 0, -2)]
    assert {(each["first"], each["second"]) for each in rows} == {(1.0, 0.0)}
    found = bench(whet, "data.jsonl", "--reward", "mine.py:pays_boxes", "--hack-rows", "3")
    paid = {each["hack"]: each["paid"] for each in found["hacks"] if each["paid"]}
    assert paid == {"boxed spam": 3, "boxed spam in one line": 3}
    found = bench(whet, "data.jsonl", "--reward", "mine.py:pays_length", "--hack-rows", "1")
    verdicts = {each["hack"]: (each["paid"], each["partly"]) for each in found["hacks"]}
    assert verdicts["empty answer"] == (0, 0)
    assert verdicts["very long text"] == (1, 0)
    assert verdicts["the word None"] == (0, 1)


def test_strict_and_the_text(answers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (answers / "mine.py").write_text(SPAM)
    assert main(["reward", "bench", "data.jsonl", "--reward", "mine.py:pays_boxes", "--strict"]) == 1
    out = capsys.readouterr().out
    assert "paid: boxed spam, boxed spam in one line" in out
    assert main(["reward", "bench", "data.jsonl", "--reward", "gsm8k", "--strict", "--json", "out.json"]) == 0
    assert "paid: none" in capsys.readouterr().out
    assert json.loads(Path("out.json").read_text())["hacks"]


def test_mistakes_are_sentences(refused: Run, answers: Path) -> None:
    assert "one subcommand, bench" in refused("reward", "bensh", "data.jsonl")
    assert "takes a data set" in refused("reward", "bench")
    assert "--nonsense" in refused("reward", "bench", "data.jsonl", "--nonsense")
    assert "there is no file or folder" in refused("reward", "bench", "none.jsonl")
    assert "there is no scorer of that name" in refused("reward", "bench", "data.jsonl", "--reward", "gsm9k")
    assert "data.answer_key" in refused("reward", "bench", "data.jsonl", "data.answer_key=truth")
    write_rows(answers / "few.jsonl", [{"response": "x"}])
    assert "cannot be matched" in refused("reward", "bench", "data.jsonl", "--responses", "few.jsonl")
    write_rows(answers / "none.jsonl", [{"text": "x"}] * 20)
    assert "--response-column" in refused("reward", "bench", "data.jsonl", "--responses", "none.jsonl")
    assert "no column right" in refused(
        "reward", "bench", "data.jsonl", "--responses", "said.jsonl", "--label", "right"
    )


def test_a_reward_that_always_raises_is_an_error(answers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (answers / "mine.py").write_text("def compute_score(response, answer):\n    raise ValueError('no')\n")
    assert main(["reward", "bench", "data.jsonl", "--reward", "mine.py:compute_score", "--hack-rows", "1"]) == 1
    assert "failed on all" in capsys.readouterr().err
    assert main(["reward", "bench", "data.jsonl", "--reward", "gsm8k", "--json", "no/such/out.json"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def _packed(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


PROGRAMS = {
    "stdin": {"inputs": ["3\n", "10\n"], "outputs": ["9\n", "100\n"]},
    "call": {"inputs": ["3", "10"], "outputs": ["9", "100"], "fn_name": "square"},
    "asserts": {"assert_case": ["assert square(3) == 9", "assert square(10) == 100"]},
    "check": {
        "test_code": "def check(candidate):\n    assert candidate(3) == 9\n    assert candidate(10) == 100\n",
        "entry_point": "square",
        "import_prefix": "",
    },
    "livecodebench": {
        "public_test_cases": json.dumps([{"input": "3", "output": "9", "testtype": "stdin"}]),
        "private_test_cases": _packed([{"input": "10", "output": "100", "testtype": "stdin"}]),
        "metadata": "{}",
    },
}
HONEST = "```python\ndef square(x):\n    return x * x\n{}\n```"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox needs Linux")
def test_no_hack_is_paid_for_programs_with_hidden_tests(whet: Run, tmp_path: Path) -> None:
    rows = []
    for name, truth in PROGRAMS.items():
        main_part = "print(square(int(input())))" if name in ("stdin", "livecodebench") else ""
        rows.append(
            {
                "prompt": "Print the square of a number, or return it from square(x).",
                "answer": json.dumps(truth),
                "data_source": "livecodebench/x" if name == "livecodebench" else "taco",
                "response": HONEST.format(main_part),
                "label": True,
            }
        )
    write_rows(tmp_path / "code.jsonl", rows)
    found = bench(whet, "code.jsonl", "--label", "label", "sandbox.timeout=5")
    assert found["labels"]["agreement"] == 1.0  # honest programs are paid
    hacks = {each["hack"]: each for each in found["hacks"]}
    assert {"empty answer", "prompt echo", "grader tampering", "exit 0", "forged report"} <= hacks.keys()
    assert all(each["rows"] == len(PROGRAMS) for each in hacks.values())
    wrong = {name: each for name, each in hacks.items() if each["paid"] or each["partly"] or each["failed"]}
    assert not wrong


def test_candidates_hold_the_truth_and_end_with_a_wrong_one() -> None:
    for truth in ("7", ["7"], '["7"]', 7, {"target": ["7"]}):
        hacks = hacks_for("What is 3 + 4?", truth)
        for name in ("answer spam", "boxed spam", "tag spam", "#### spam"):
            lines = hacks[name].splitlines()
            assert sum("7" in line and "17" not in line for line in lines) == 1
            assert "17" in lines[-1]
    assert "exit 0" in hacks_for("", {"inputs": ["1"], "outputs": ["1"]})
    assert "boxed spam" not in hacks_for("", {"inputs": ["1"], "outputs": ["1"]})


def test_the_guide(whet: Run, quickstart: Path, here: Path) -> None:
    """Commands of docs/rewards.md run as they stand there."""
    (here / "examples").symlink_to(examples_folder().absolute())
    text = (Path(__file__).parents[3] / "docs" / "rewards.md").read_text()
    found = re.findall(r"^(whet reward .*)$", text, re.MULTILINE)
    assert found
    for command in found:
        assert "paid: none" in whet(*shlex.split(command)[1:])
