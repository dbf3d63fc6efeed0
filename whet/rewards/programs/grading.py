"""The sandbox as a scorer sees it: a program and its tests go in, a verdict for each test comes out."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from whet.errors import UserError
from whet.rewards.programs.tests import ProgramTests

# Names that solutions to call-based tasks use without importing them, as the judges they were written for allow.
PRELUDE = (
    "import bisect, collections, functools, heapq, itertools, math, random, re, string, sys\n"
    "from bisect import *\nfrom collections import *\nfrom functools import *\nfrom heapq import *\n"
    "from itertools import *\nfrom math import *\nfrom typing import *\n"
)


@dataclass(frozen=True)
class Verdict:
    """Outcome of one test, computed outside the process that ran the program."""

    passed: bool
    status: str = ""  # how the program ended: "ok", "error", "timeout", ...
    output: str = ""  # what it printed, for tests of standard output


class Grader(Protocol):
    """Runs a program confined, once for each test, and compares results outside of it."""

    def grade(self, program: str, tests: ProgramTests, seconds: float, memory_mb: int) -> Sequence[Verdict]:
        """Return one verdict per test, in their order."""


@cache
def sandbox_grader() -> Grader:
    """The grader in whet.sandbox, one for this process. Programs never run without it."""
    try:
        import whet.sandbox as sandbox
    except ImportError as error:
        raise UserError(
            "the scorer code runs programs in whet.sandbox, which is not available here; nothing is run unconfined"
        ) from error
    return SandboxGrader(sandbox)


class SandboxGrader:
    """The only place where scorers meet the sandbox."""

    def __init__(self, sandbox: Any) -> None:
        """Start it; UserError where the system offers no confinement."""
        self._package = sandbox
        self._sandbox = sandbox.Sandbox(workers=1)
        atexit.register(self._sandbox.close)

    def grade(self, program: str, tests: ProgramTests, seconds: float, memory_mb: int) -> Sequence[Verdict]:
        """Return one verdict per test, in their order."""
        limits = self._package.Limits(timeout=seconds, memory_mb=memory_mb)
        if tests.kind == "stdin":
            return [self._compare(program, test.input, test.output, limits) for test in tests.tests]
        program = program if program.lstrip().startswith("from __future__") else PRELUDE + program
        if tests.kind == "call":
            pairs = [(test.arguments, test.expected) for test in tests.tests]
            report = self._package.grade_calls(self._sandbox, program, tests.entry_point, pairs, limits, stop=False)
        else:
            # Asserts and check(candidate) run beside the program, never in its process.
            codes, setup = [test.code for test in tests.tests], PRELUDE + tests.setup
            entry = tests.entry_point or None
            report = self._package.grade_tests(self._sandbox, tests.setup + "\n" + program, codes, setup, entry, limits)
        verdicts = [Verdict(each.passed, each.status) for each in report.outcomes[: len(tests)]]
        return verdicts + [Verdict(False, "lost")] * (len(tests) - len(verdicts))

    def _compare(self, program: str, given: str, wanted: str, limits: Any) -> Verdict:
        from whet.sandbox.compare import same_output

        result = self._sandbox.run(program, given, limits)
        return Verdict(result.status == "ok" and same_output(result.stdout, wanted), result.status, result.stdout)
