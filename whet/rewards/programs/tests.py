"""Tests of a program as data sets write them, read into one form.

| family | ground truth |
|---|---|
| stdin (APPS, TACO, Codeforces, OR1) | `{inputs: [...], outputs: [...]}`; a text or a list of lines each |
| call-based | the same with `fn_name`; one JSON value per line of an input, or a list of arguments |
| asserts (MBPP, KodCode, OR1) | `{assert_case: [...]}` or `{test_list: [...]}`, with `test_setup_code` |
| unit tests (LeetCode, HumanEval) | `{test_code or test: "def check(candidate): ...", entry_point}`, import_prefix |
| LiveCodeBench | `{public_test_cases, private_test_cases, metadata}`, or a list of `{input, output, testtype}` |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from whet.errors import UserError
from whet.rewards.programs.livecodebench import unpacked

MOST_TESTS = 1000
Kind = Literal["stdin", "call", "assert", "check"]


@dataclass(frozen=True)
class ProgramTest:
    """One test: what goes in and what must come out; `arguments` and `expected` are JSON values of a call."""

    input: str = ""
    output: str = ""  # expected, as the data set writes it
    arguments: tuple[Any, ...] = ()
    expected: Any = None
    code: str = ""  # an assertion


@dataclass(frozen=True)
class ProgramTests:
    """All tests of a row. `check` is code that defines `check(candidate)`, to be called with `entry_point`."""

    kind: Kind
    tests: tuple[ProgramTest, ...]
    entry_point: str = ""  # the function that is called, for call-based and unit tests
    setup: str = ""  # code that runs before the program
    check: str = ""

    def __len__(self) -> int:
        return len(self.tests)


def read_tests(truth: Any) -> ProgramTests:
    """Read the tests of a row; UserError on a ground truth that is none of the known forms."""
    if isinstance(truth, (str, bytes)):
        truth = _from_json(truth)
    if isinstance(truth, list):
        truth = {"public_test_cases": truth} if truth and isinstance(truth[0], Mapping) else {"assert_case": truth}
    if not isinstance(truth, Mapping):
        raise UserError(f"the ground truth is {type(truth).__name__}; {_EXPECTED}")
    truth = {name: value for name, value in truth.items() if value is not None}
    if "public_test_cases" in truth or "private_test_cases" in truth:
        return _livecodebench(truth)
    if "test_code" in truth or ("test" in truth and "entry_point" in truth):
        return _unit_tests(truth)
    if "inputs" in truth and "outputs" in truth:
        return _input_output(truth)
    if "assert_case" in truth or "test_list" in truth:
        return _asserts(truth)
    if "question_id" in truth:
        raise UserError(
            f"the ground truth names LiveCodeBench's question {truth['question_id']!r} without its tests: join the "
            "rows with the data set's public_test_cases and private_test_cases"
        )
    raise UserError(f"the ground truth has the keys {', '.join(map(str, list(truth)[:8])) or '(none)'}; {_EXPECTED}")


_EXPECTED = "expected tests: inputs and outputs, assert_case, test_code and entry_point, or public_test_cases"


def _from_json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the ground truth is no JSON of tests: {error}; {_EXPECTED}") from error


def _input_output(truth: Mapping[str, Any]) -> ProgramTests:
    inputs, outputs = truth["inputs"], truth["outputs"]
    if not isinstance(inputs, (list, tuple)) or not isinstance(outputs, (list, tuple)) or len(inputs) != len(outputs):
        raise UserError("inputs and outputs of the ground truth must be two lists of the same length")
    pairs = list(zip(inputs, outputs))[:MOST_TESTS]
    name = truth.get("fn_name")
    if not name:
        return ProgramTests("stdin", tuple(ProgramTest(_lines(given), _lines(wanted)) for given, wanted in pairs))
    return ProgramTests("call", tuple(_call(given, wanted) for given, wanted in pairs), entry_point=str(name))


def _asserts(truth: Mapping[str, Any]) -> ProgramTests:
    cases = truth.get("assert_case", truth.get("test_list"))
    if not isinstance(cases, (list, tuple)):
        raise UserError("assert_case of the ground truth must be a list of assertions")
    setup = str(truth.get("test_setup_code", truth.get("import_prefix", "")))
    return ProgramTests("assert", tuple(ProgramTest(code=str(case)) for case in cases[:MOST_TESTS]), setup=setup)


def _unit_tests(truth: Mapping[str, Any]) -> ProgramTests:
    """Unit tests are one test: `check` may have variables and assertions over several lines."""
    code, name = str(truth.get("test_code", truth.get("test"))), truth.get("entry_point")
    if not name:
        raise UserError("the ground truth has test_code without entry_point, the function that it checks")
    setup = str(truth.get("import_prefix", truth.get("prompt", "")))
    empty = "assert" not in code and "raise" not in code
    return ProgramTests(
        "check", () if empty else (ProgramTest(code=code),), entry_point=str(name), setup=setup, check=code
    )


def _livecodebench(truth: Mapping[str, Any]) -> ProgramTests:
    cases = [*unpacked(truth.get("public_test_cases", [])), *unpacked(truth.get("private_test_cases", []))]
    metadata = truth.get("metadata") or {}
    metadata = _from_json(metadata) if isinstance(metadata, str) else metadata
    name = metadata.get("func_name") or truth.get("fn_name")
    functional = [case for case in cases if case.get("testtype") == "functional"]
    if functional and not name:
        raise UserError("the ground truth has functional tests, but metadata has no func_name")
    if functional:
        tests = tuple(_call(case["input"], case["output"]) for case in cases[:MOST_TESTS])
        return ProgramTests("call", tests, entry_point=str(name))
    return ProgramTests(
        "stdin", tuple(ProgramTest(_lines(case["input"]), _lines(case["output"])) for case in cases[:MOST_TESTS])
    )


def _call(given: Any, wanted: Any) -> ProgramTest:
    return ProgramTest(_lines(given), _lines(wanted), _arguments(given), _expected(wanted))


def _lines(value: Any) -> str:
    """A text, or a list of lines."""
    return "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _arguments(value: Any) -> tuple[Any, ...]:
    """Arguments of a call: a list of them, or a text with one JSON value per line."""
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return tuple(_value(line) for line in value.split("\n") if line.strip())


def _expected(value: Any) -> Any:
    return _value(value) if isinstance(value, str) else value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a text without its quotation marks
