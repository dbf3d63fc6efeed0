"""The sandbox as a scorer sees it: a program and its tests go in, a verdict for each test comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from whet.errors import UserError
from whet.rewards.programs.tests import Tests


@dataclass(frozen=True)
class Verdict:
    """Outcome of one test, computed outside the process that ran the program."""

    passed: bool
    status: str = ""  # how the program ended: "ok", "error", "timeout", ...
    output: str = ""  # what it printed, or the JSON text of what the function returned


class Grader(Protocol):
    """Runs a program confined, once for each test, and compares results outside of it."""

    def grade(self, program: str, tests: Tests, seconds: float, memory_mb: int) -> Sequence[Verdict]:
        """Return one verdict per test, in their order."""


def sandbox_grader() -> Grader:
    """The grader of `whet.sandbox`: the only place where scorers meet it. Programs never run without it."""
    try:
        from whet.sandbox.grader import GRADER
    except ImportError as error:
        raise UserError(
            "the scorer code runs programs in whet.sandbox, which is not available here; nothing is run unconfined"
        ) from error
    return GRADER
