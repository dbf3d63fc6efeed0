"""The sandbox as a scorer sees it: a program and its tests go in, a verdict for each test comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from whet.errors import UserError
from whet.rewards.programs.opened import sandbox, seconds_left
from whet.rewards.programs.tests import ProgramTest, ProgramTests

if TYPE_CHECKING:
    from whet.sandbox.grading import Outcome
    from whet.sandbox.limits import Limits
    from whet.sandbox.pool import Sandbox
    from whet.sandbox.remote import RemoteSandbox

# Names that solutions to call-based tasks use without importing them, as the judges they were written for allow.
PRELUDE = (
    "import bisect, collections, functools, heapq, itertools, math, random, re, string, sys\n"
    "from bisect import *\nfrom collections import *\nfrom functools import *\nfrom heapq import *\n"
    "from itertools import *\nfrom math import *\nfrom typing import *\n"
)
ATTEMPTS = 3  # at a program whose sandbox process was lost
_LEAST_SECONDS = 0.05  # that a program may be given
_Found = TypeVar("_Found")


class LostError(Exception):
    """The sandbox lost its process several times in a row: nothing is known of the program."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of one test, computed outside the process that ran the program."""

    passed: bool
    status: str = ""  # how the program ended: "ok", "error", "timeout", ...
    output: str = ""  # what it printed, for tests of standard output


class Grader(Protocol):
    """Runs a program confined, once for each test, and compares results outside of it."""

    def grade(
        self, program: str, tests: ProgramTests, seconds: float | None, memory_mb: int | None
    ) -> Sequence[Verdict]:
        """Return one verdict per test, in their order; None takes the limit of `sandbox.*`."""


@cache
def sandbox_grader() -> Grader:
    """The grader in whet.sandbox, one for this process. Programs never run without it."""
    return SandboxGrader(sandbox())


class SandboxGrader:
    """The only place where scorers meet the sandbox.

    A test whose sandbox process was lost is run again, and raises LostError where that happens `ATTEMPTS` times. Tests
    that there is no time left for, because the programs before them took it, have failed with status "timeout".
    """

    def __init__(self, opened: Sandbox | RemoteSandbox, left: Callable[[], float] = seconds_left) -> None:
        """`left` returns the seconds that all tests together may still take."""
        self._sandbox = opened
        self._left = left

    def grade(
        self, program: str, tests: ProgramTests, seconds: float | None, memory_mb: int | None
    ) -> Sequence[Verdict]:
        """Return one verdict per test, in their order."""
        limits = self._sandbox.limits
        limits = replace(limits, timeout=seconds or limits.timeout, memory_mb=memory_mb or limits.memory_mb)
        if tests.kind == "stdin":
            return [self._within(limits, partial(self._stdin, program, test)) for test in tests.tests]
        program = program if program.lstrip().startswith("from __future__") else PRELUDE + program
        if tests.kind == "call":
            name = tests.entry_point
            return [self._within(limits, partial(self._call, program, name, test)) for test in tests.tests]
        return self._in_code(program, tests, limits)

    def _within(self, limits: Limits, run: Callable[[Limits], Verdict]) -> Verdict:
        """Run one test in the time that is left."""
        left = self._left()
        if left < _LEAST_SECONDS:
            return Verdict(False, "timeout")
        return _found(lambda: run(replace(limits, timeout=min(limits.timeout, left))), lambda verdict: verdict.status)

    def _stdin(self, program: str, test: ProgramTest, limits: Limits) -> Verdict:
        from whet.sandbox.compare import same_output

        result = self._sandbox.run(program, test.input, limits)
        right = result.status == "ok" and same_output(result.stdout, test.output)
        return Verdict(right, result.status, result.stdout)

    def _call(self, program: str, name: str, test: ProgramTest, limits: Limits) -> Verdict:
        from whet.sandbox.grading import grade_calls

        report = grade_calls(self._local(), program, name, [(test.arguments, test.expected)], limits)
        return Verdict(report.outcomes[0].passed, report.outcomes[0].status)

    def _in_code(self, program: str, tests: ProgramTests, limits: Limits) -> Sequence[Verdict]:
        """Asserts and check(candidate) run beside the program, never in its process."""
        from whet.sandbox.grading import grade_tests

        codes, setup = [test.code for test in tests.tests], PRELUDE + tests.setup
        opened, entry, source = self._local(), tests.entry_point or None, tests.setup + "\n" + program

        def run() -> tuple[Outcome, ...]:
            bounds = replace(limits, timeout=max(_LEAST_SECONDS, min(limits.timeout, self._left())))
            return grade_tests(opened, source, codes, setup, entry, bounds).outcomes

        outcomes = _found(run, lambda found: found[-1].status)
        verdicts = [Verdict(each.passed, each.status) for each in outcomes[: len(tests)]]
        return verdicts + [Verdict(False, outcomes[-1].status)] * (len(tests) - len(verdicts))

    def _local(self) -> Sandbox:
        from whet.sandbox.pool import Sandbox

        if not isinstance(self._sandbox, Sandbox):
            raise UserError(
                "sandbox.url: a server runs tests of standard output only; calls, asserts and unit tests need the "
                "sandbox of this machine: leave sandbox.url out"
            )
        return self._sandbox


def _found(run: Callable[[], _Found], status: Callable[[_Found], str]) -> _Found:
    """Run until the sandbox does not lose its process."""
    for _ in range(ATTEMPTS):
        found = run()
        if status(found) != "lost":
            return found
    raise LostError(f"the sandbox lost the process that watches the program, {ATTEMPTS} times in a row")
