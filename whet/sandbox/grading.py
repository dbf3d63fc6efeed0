"""Grade a program by tests that it never sees, with the verdict computed outside the process that runs it.

Trust model. A program's process belongs to the program: it may patch builtins, override `==`, replace stdout, write to
any descriptor it inherits, exit with 0 at any moment, or read its own memory. So nothing in that process decides:

- stdin tests: the program's standard output is compared here. Exit code 0 is necessary and never sufficient.
- calls: the function's name and arguments go in, JSON comes back through a pipe, and it is compared here. A program
  that writes the reply itself has to know the answer; expected values never enter its process or the zygote.
- tests in code (asserts, check(candidate), unittest, functions test_*): they run in a second confined process, which
  holds no code of the program. Names of the program are stand-ins there that send arguments to the program's process
  and get plain data back. An object that claims to equal everything is an object of the other process, and equals no
  plain value. Only that second process has the pipe of the verdict, with a secret that the program's never held.

What remains: a program sees the arguments of each call and may answer them from a table; tests that run eval or exec on
what a program returned run its text; two objects of the program are compared by the program's own `==`.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from whet.errors import UserError
from whet.sandbox.compare import same_output, same_value
from whet.sandbox.limits import Limits, Result
from whet.sandbox.pool import Sandbox

_MARGIN = 2.0  # seconds that tests have beyond the program's time


@dataclass(frozen=True)
class Outcome:
    """One test: whether it passed, how its process ended, and why it failed."""

    passed: bool
    status: str
    message: str = ""


@dataclass(frozen=True)
class Report:
    """All tests of one program, up to the first failure if the grader was told to stop there."""

    outcomes: tuple[Outcome, ...]
    count: int  # tests there were

    @property
    def passed(self) -> bool:
        """True if every test passed, and there was one."""
        return self.count > 0 and len(self.outcomes) == self.count and all(each.passed for each in self.outcomes)

    @property
    def share(self) -> float:
        """Fraction of the tests that passed."""
        return sum(each.passed for each in self.outcomes) / self.count if self.count else 0.0


class Runner(Protocol):
    """Anything that runs programs as `Sandbox.run` does, here or on another machine."""

    def run(
        self,
        program: str,
        stdin: str | bytes = "",
        limits: Limits | None = None,
        files: Mapping[str, bytes] | None = None,
        name: str = "python",
    ) -> Result:
        """Run a program to its end."""


def grade_stdin(
    sandbox: Runner,
    program: str,
    tests: Sequence[tuple[str, str]],
    limits: Limits | None = None,
    language: str = "python",
    stop: bool = True,
) -> Report:
    """Run a program once for each (stdin, expected stdout)."""
    _check(tests)
    outcomes: list[Outcome] = []
    for entry, expected in tests:
        result = sandbox.run(program, entry, limits, name=language)
        right = same_output(result.stdout, expected)
        outcomes.append(_outcome(result, right, "the output differs"))
        if stop and not outcomes[-1].passed:
            break
    return Report(tuple(outcomes), len(tests))


def grade_calls(
    sandbox: Sandbox,
    program: str,
    function: str,
    tests: Sequence[tuple[Sequence[Any], Any]],
    limits: Limits | None = None,
    stop: bool = True,
) -> Report:
    """Call a function (or a method of a class Solution) once for each (arguments, expected result), as JSON values."""
    _check(tests)
    outcomes: list[Outcome] = []
    bounds = limits or sandbox.limits
    for arguments, expected in tests:
        request = {"source": program, "function": function, "arguments": list(arguments)}
        with sandbox.worker() as slot:
            running = slot.zygote().start("call", request, bounds, wants_reply=True)
            (result,) = slot.finish([running])
        known, value = _read_reply(result.reply)
        outcomes.append(_outcome(result, known and same_value(value, expected), "the result differs"))
        if stop and not outcomes[-1].passed:
            break
    return Report(tuple(outcomes), len(tests))


def grade_tests(
    sandbox: Sandbox,
    program: str,
    tests: Sequence[str],
    setup: str = "",
    entry: str | None = None,
    limits: Limits | None = None,
) -> Report:
    """Run texts of Python tests against a program: asserts, check(candidate), unittest cases or functions test_*.

    `entry` names the function under test, for check(candidate) and for names that are also built-in ones.
    """
    _check(tests)
    bounds = limits or sandbox.limits
    secret = secrets.token_hex(16)
    request = {"tests": list(tests), "setup": setup, "entry": entry, "secret": secret}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with sandbox.worker() as slot:
        zygotes = slot.zygote(0), slot.zygote(1)
        with ours, theirs:
            serving = zygotes[0].start("serve", {"source": program}, bounds, channel=theirs.fileno())
            longer = replace(bounds, timeout=bounds.timeout + _MARGIN)
            examining = zygotes[1].start("tests", request, longer, entry=ours.fileno(), wants_reply=True)
        served, examined = slot.finish([serving, examining], until=examining)
    return _verdicts(examined, served, secret, len(tests))


def _verdicts(examined: Result, served: Result, secret: str, count: int) -> Report:
    try:
        reply = json.loads(examined.reply)
        if reply["secret"] != secret:
            raise ValueError("the verdict is not the tests' own")
        verdicts = reply["verdicts"]
    except (ValueError, KeyError, TypeError, RecursionError):
        status = served.status if served.status not in ("ok", "signal") else examined.status
        return Report((Outcome(False, status, "the tests gave no verdict"),), count)
    status = served.status if served.status in ("timeout", "memory_limit", "output_limit", "disk_limit") else "ok"
    outcomes = tuple(
        Outcome(each["passed"] is True, "ok" if each["passed"] is True else status, str(each["message"]))
        for each in verdicts
    )
    return Report(outcomes, max(count, len(outcomes)))


def _outcome(result: Result, right: bool, message: str) -> Outcome:
    if result.status != "ok":
        return Outcome(False, result.status, result.stderr.strip()[-500:])
    return Outcome(right, "ok", "" if right else message)


def _read_reply(reply: bytes) -> tuple[bool, Any]:
    """Return whether there is a result, and it; the bytes are the program's to choose."""
    try:
        message = json.loads(reply)
        return True, message["value"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False, None


def _check(tests: Sequence[Any]) -> None:
    if not tests:
        raise UserError("a program cannot be graded without tests: the list of tests is empty")
