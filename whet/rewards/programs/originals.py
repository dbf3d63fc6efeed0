"""Rules of the originals' code scorers, for `match`: which block counts, and what a list of verdicts is worth."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from whet.rewards.programs.extract import of_or1, of_prime, of_sandbox_fusion
from whet.rewards.programs.grading import Verdict
from whet.rewards.programs.tests import ProgramTest, ProgramTests

FIRST = 10  # tests that verl's scorers count


def program_of(match: str, response: str, tests: ProgramTests) -> str | None:
    """The program that the original runs; None where it runs none."""
    if match == "verl":
        return of_prime(response)
    if match == "sandbox_fusion":
        return of_sandbox_fusion(response)
    program = of_or1(response)
    return program if program is not None and _parses(program) else None


def tests_of(match: str, tests: ProgramTests) -> ProgramTests:
    """The tests that the original runs: OR1 makes one of each line of `check`, joined to its first line."""
    if match != "or1" or tests.kind != "check":
        return tests
    head, *lines = [line for line in tests.check.split("\n") if line]
    return replace(tests, tests=tuple(ProgramTest(code=head + line) for line in lines))


def value_of(
    match: str, program: str, tests: ProgramTests, verdicts: Sequence[Verdict], continuous: bool, power: float
) -> float:
    """The original's score."""
    passed = [_passes(match, program, tests, test, verdict) for test, verdict in zip(tests.tests, verdicts)]
    if match == "verl":
        if all(passed) or not continuous:
            return float(all(passed))
        # One by one, the original forgets which function to call: partial credit is for stdin alone.
        return 0.0 if tests.kind == "call" else sum(passed[:FIRST]) / len(passed[:FIRST])
    if match == "sandbox_fusion":
        counted = passed[:FIRST] if continuous else passed
        return sum(counted) / len(counted) if continuous else float(all(counted))
    if not continuous:
        return float(all(passed))
    if tests.kind in ("assert", "check"):
        return (sum(passed) / len(passed)) ** power
    first = passed.index(False) if False in passed else len(passed)  # it stops at the first failure
    return (first / min(first + 1, len(passed))) ** power


def _passes(match: str, program: str, tests: ProgramTests, test: ProgramTest, verdict: Verdict) -> bool:
    """The original's verdict on a test, from what the program printed or returned."""
    if verdict.status != "ok" or tests.kind in ("assert", "check"):
        return verdict.passed
    if match != "sandbox_fusion" and "stdin.buffer" in program:
        return False  # their standard input has no bytes
    if match == "or1" and tests.kind == "call" and _is_moved_and_recursive(program, tests.entry_point):
        return False
    if tests.kind == "call":
        return verdict.passed and (match != "sandbox_fusion" or _printed(test.expected) == test.output.rstrip("\n"))
    if match == "sandbox_fusion":
        return verdict.output.rstrip("\n") == test.output.rstrip("\n")
    return _same_lines(verdict.output, test.output, close=match == "verl")


def _same_lines(output: str, wanted: str, close: bool) -> bool:
    """Stripped lines are equal, or their numbers: exactly (OR1), or within numpy's tolerance (prime_code)."""
    ours = [line.strip() for line in output.strip().split("\n")]
    theirs = [line.strip() for line in wanted.strip().split("\n")]
    if ours == theirs:
        return True
    if close:
        ours, theirs = [line for line in ours if line], [line for line in theirs if line]
        if ours == theirs:
            return True
    if len(ours) != len(theirs):
        return False
    if close:
        return _all_close(ours, theirs)
    return all(a == b or _numbers(a.split()) == _numbers(b.split()) != [] for a, b in zip(ours, theirs))


def _all_close(ours: list[str], theirs: list[str]) -> bool:
    if all(a.isdigit() and b.isdigit() for a, b in zip(ours, theirs)):
        return False
    try:
        pairs = [(float(a), float(b)) for a, b in zip(ours, theirs)]
    except ValueError:
        return False
    return all(abs(a - b) <= 1e-8 + 1e-5 * abs(b) for a, b in pairs if math.isfinite(a) or a != b)


def _numbers(words: list[str]) -> list[float]:
    try:
        return [float(word) for word in words]
    except ValueError:
        return []


def _printed(value: Any) -> str:
    """Return what sandbox_fusion's wrapper prints of a returned value: texts and numbers without JSON."""
    return json.dumps(value) if isinstance(value, (dict, list, bool)) or value is None else str(value)


def _is_moved_and_recursive(program: str, name: str) -> bool:
    """True for a function that OR1 moves into a class, where it no longer finds itself."""
    if "class Solution" in program:
        return False
    for node in ast.parse(program).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))
    return False


def _parses(program: str) -> bool:
    try:
        ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
