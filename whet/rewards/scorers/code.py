"""Programs: the last block of Python in a response, run in the sandbox against the row's tests.

The score is the fraction of tests that pass, raised to `power`; with `continuous=false` it is 1 only if all do. A row
without tests scores 0. `match` takes the rules of an original (which block, which tests, how outputs are compared) but
none of its holes: verl is prime_code, sandbox_fusion verl's remote scorer, or1 Skywork-OR1's function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.errors import UserError
from whet.rewards.programs import originals
from whet.rewards.programs.extract import program_in
from whet.rewards.programs.grading import Grader, Verdict, sandbox_grader
from whet.rewards.programs.tests import read_tests
from whet.rewards.registry import Score, Scorer, check_match


def score(
    response: str,
    ground_truth: Any,
    *,
    match: str = "whet",
    continuous: bool = True,
    power: float = 1.0,
    seconds: float | None = None,
    memory_mb: int | None = None,
    is_binary_reward: bool | None = None,
    is_power4_reward: bool = False,
    grader: Grader | None = None,
) -> Score:
    """The fraction of tests that pass. `is_binary_reward` and `is_power4_reward` are Skywork-OR1's names.

    `seconds` and `memory_mb` bound each test; by default `sandbox.timeout` and `sandbox.memory_mb` do.
    """
    check_match(match, "code", SCORER.matches)
    if power <= 0 or (seconds is not None and seconds <= 0):
        raise UserError(f"power={power}, seconds={seconds}: both must be more than 0")
    if is_binary_reward is not None:
        continuous = not is_binary_reward
    power = 4.0 if is_power4_reward else power
    tests = originals.tests_of(match, read_tests(ground_truth))
    program = program_in(response) if match == "whet" else originals.program_of(match, response, tests)
    if program is None or not len(tests):
        return _result(0.0, [], len(tests), program is not None)
    verdicts = (grader or sandbox_grader()).grade(program, tests, seconds, memory_mb)
    if len(verdicts) != len(tests):
        raise RuntimeError(f"{len(tests)} tests, {len(verdicts)} verdicts")
    if match != "whet":
        return _result(
            originals.value_of(match, program, tests, verdicts, continuous, power), verdicts, len(tests), True
        )
    passed = sum(verdict.passed for verdict in verdicts) / len(verdicts)
    return _result(passed**power if continuous else float(passed == 1), verdicts, len(tests), True)


def _result(overall: float, verdicts: Sequence[Verdict], count: int, form: bool) -> Score:
    passed = sum(verdict.passed for verdict in verdicts)
    return {
        "overall": overall,
        "accuracy": float(bool(verdicts) and passed == len(verdicts)),
        "format": float(form),
        "tests": float(count),
        "passed": float(passed),
    }


SCORER = Scorer(
    score,
    data_sources=(
        "codecontests",
        "apps",
        "codeforces",
        "taco",
        "train-code-*",
        "test-code-*",
        "livecodebench*",
        "livecodebench/*",
    ),
    summary="fraction of tests (stdin, calls, asserts, unit tests, LiveCodeBench) that the last Python block passes",
    matches=("verl", "sandbox_fusion", "or1"),
    needs=("sandbox",),
)
