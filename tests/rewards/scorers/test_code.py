"""The code scorer: programs in responses, tests in ground truths, what verdicts are worth. Nothing is run here."""

# ruff: noqa: E501

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from whet.errors import UserError
from whet.rewards.programs.extract import program_in
from whet.rewards.programs.grading import Verdict
from whet.rewards.programs.tests import ProgramTest, ProgramTests, read_tests
from whet.rewards.registry import SCORERS

FENCE = "```"
PROGRAMS = [
    (f"{FENCE}python\nprint(1)\n{FENCE}", "print(1)\n"), (f"x\n{FENCE}py\nprint(1)\n{FENCE}\ny", "print(1)\n"), (f"{FENCE}\nprint(1)\n{FENCE}", "print(1)\n"),
    (f"{FENCE}python\nprint(1)\n{FENCE}\nbetter:\n{FENCE}python\nprint(3)\n{FENCE}", "print(3)\n"), (f"{FENCE}python\nprint(1)\n{FENCE}\noutput:\n{FENCE}\n1\n{FENCE}", "print(1)\n"),
    (f"<think>{FENCE}python\nprint(1)\n{FENCE}</think>\n{FENCE}python\nprint(2)\n{FENCE}", "print(2)\n"), (f"{FENCE}python\nprint(1)", "print(1)"), ("print(3)", None), ("", None),
    (f"{FENCE}cpp\nint main;\n{FENCE}", None), (f"{FENCE}python\n\n{FENCE}", None), (f"  {FENCE}Python3\nprint(1)\n  {FENCE}", "print(1)\n"), (f"<think>a</think>{FENCE}x", None),
]  # fmt: skip
ADD = f"{FENCE}python\ndef add(a, b):\n    return a + b\n{FENCE}"


@dataclass
class Recorded:
    """A grader that gives prepared verdicts and notes what it was asked."""

    verdicts: Sequence[Verdict] = ()
    asked: list[tuple[str, ProgramTests]] = field(default_factory=list)

    def grade(self, program: str, tests: ProgramTests, seconds: float, memory_mb: int) -> Sequence[Verdict]:
        self.asked.append((program, tests))
        return self.verdicts


def verdicts(marks: str) -> Recorded:
    return Recorded([Verdict(mark == "1", "ok") for mark in marks])


def stdin_tests(count: int) -> dict:
    return {"inputs": ["x"] * count, "outputs": ["y"] * count}


def score(grader: Recorded, truth: object, response: str = ADD, **options: object) -> float:
    return SCORERS.find("code").score(response, truth, grader=grader, **options)["overall"]


@pytest.mark.parametrize(("response", "program"), PROGRAMS)
def test_the_program_of_a_response(response, program):
    assert program_in(response) == program


def lcb(cases: list[dict]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


CASE = {"input": "1\n2", "output": "3", "testtype": "functional"}
FORMS: list[tuple[object, str, Callable[[ProgramTests], bool]]] = [
    ({"inputs": ["1 2\n"], "outputs": ["3\n"]}, "stdin", lambda t: t.tests == (ProgramTest("1 2\n", "3\n"),)),
    ('{"inputs": ["q"], "outputs": ["q"]}', "stdin", lambda t: t.tests == (ProgramTest("q", "q"),)),
    ({"inputs": [["1", "2"]], "outputs": [["3"]]}, "stdin", lambda t: t.tests == (ProgramTest("1\n2", "3"),)),
    ({"inputs": ["1\n2"], "outputs": ["3"], "fn_name": "add"}, "call", lambda t: t.tests[0].arguments == (1, 2)),
    ({"inputs": ['"z"'], "outputs": ['"z"'], "fn_name": "f"}, "call", lambda t: t.tests[0].expected == "z"),
    ({"inputs": [[1, [2]]], "outputs": [3], "fn_name": "f"}, "call", lambda t: t.tests[0].arguments == (1, [2])),
    ({"inputs": ["1"], "outputs": ["1"], "fn_name": None}, "stdin", lambda t: len(t) == 1),
    ({"assert_case": ["assert f(1) == 2"]}, "assert", lambda t: t.tests[0].code == "assert f(1) == 2"),
    (["assert f(1) == 2", "assert f(2) == 3"], "assert", lambda t: len(t) == 2),
    ({"test_list": ["assert f(1)"], "test_setup_code": "import math"}, "assert", lambda t: t.setup == "import math"),
    ({"import_prefix": "import re\n", "test_code": "def check(c):\n    assert c(1)", "entry_point": "f"}, "check", lambda t: t.entry_point == "f"),
    ({"prompt": "p", "test": "def check(c): assert c(1)", "entry_point": "f"}, "check", lambda t: len(t) == 1),
    ({"import_prefix": "", "test_code": "def check(c): pass", "entry_point": "f"}, "check", lambda t: len(t) == 0),
    ([CASE | {"testtype": "stdin"}], "stdin", lambda t: t.tests[0].output == "3"),
    ({"public_test_cases": [CASE], "metadata": {"func_name": "f"}}, "call", lambda t: t.entry_point == "f"),
    ({"public_test_cases": json.dumps([CASE]), "private_test_cases": lcb([CASE, CASE]), "metadata": '{"func_name": "f"}'}, "call", lambda t: len(t) == 3),
    ({"public_test_cases": "", "private_test_cases": lcb([CASE | {"testtype": "stdin"}])}, "stdin", lambda t: len(t) == 1),
]  # fmt: skip


@pytest.mark.parametrize(("truth", "kind", "holds"), FORMS)
def test_tests_are_read_in_every_form(truth, kind, holds):
    tests = read_tests(truth)
    assert tests.kind == kind
    assert holds(tests)


class Evil:
    def __reduce__(self):
        return (print, ("run",))


BAD = [
    (42, "int"), ("nonsense", "no JSON"), ({}, "keys"), ({"inputs": ["1"], "outputs": []}, "same length"), ({"inputs": "1", "outputs": "1"}, "two lists"),
    ({"assert_case": "assert"}, "list of assertions"), ({"test_code": "x"}, "entry_point"), ({"question_id": "abc_1"}, "abc_1"), ({"public_test_cases": [CASE]}, "func_name"),
    ({"private_test_cases": "!!"}, "neither JSON"), ({"private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()}, "print"),
    ({"private_test_cases": base64.b64encode(zlib.compress(pickle.dumps([1]))).decode()}, "only a text"), ({"public_test_cases": [1]}, "must be lists"),
]  # fmt: skip


@pytest.mark.parametrize(("truth", "named"), BAD)
def test_a_ground_truth_without_tests_is_refused(truth, named):
    with pytest.raises(UserError, match=named):
        read_tests(truth)


def test_there_are_enough_labelled_cases():
    assert len(PROGRAMS) + len(FORMS) + len(BAD) >= 30


@pytest.mark.parametrize(("marks", "options", "wanted"), [
    ("11", {}, 1.0), ("10", {}, 0.5), ("0001", {}, 0.25), ("0000", {}, 0.0), ("10", {"continuous": False}, 0.0), ("11", {"continuous": False}, 1.0),
    ("10", {"power": 4}, 0.0625), ("10", {"is_binary_reward": False, "is_power4_reward": True}, 0.0625), ("10", {"is_binary_reward": True}, 0.0),
    ("1" * 11 + "0", {"match": "verl"}, 1.0), ("0" + "1" * 11, {"match": "verl"}, 0.9), ("110", {"match": "or1", "is_binary_reward": False}, 2 / 3),
    ("0111", {"match": "or1", "is_binary_reward": False}, 0.0), ("10", {"match": "sandbox_fusion"}, 0.5),
])  # fmt: skip
def test_what_verdicts_are_worth(marks, options, wanted):
    grader = Recorded([Verdict(mark == "1", "ok", "y" if mark == "1" else "n") for mark in marks])
    assert score(grader, stdin_tests(len(marks)), **options) == pytest.approx(wanted)


def test_a_row_without_tests_and_a_response_without_a_program_score_nothing_and_run_nothing():
    grader = verdicts("")
    assert score(grader, stdin_tests(0)) == 0.0
    assert score(grader, {"assert_case": []}) == 0.0
    assert score(grader, stdin_tests(1), "no program") == 0.0
    assert grader.asked == []


def test_too_few_verdicts_are_an_error():
    with pytest.raises(RuntimeError, match="2 tests, 1 verdicts"):
        score(verdicts("1"), stdin_tests(2))
