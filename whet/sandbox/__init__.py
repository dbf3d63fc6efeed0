"""Confined execution of programs that a model wrote, without root and without a container.

    with Sandbox() as sandbox:
        result = sandbox.run("print(int(input()) * 2)", stdin="21")
        report = grade_tests(sandbox, program, ["assert double(4) == 8"])

`Sandbox` holds the processes, `grade_stdin`, `grade_calls` and `grade_tests` compute verdicts outside of them. Guide:
docs/sandbox.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.sandbox.grading import Outcome, Report, grade_calls, grade_stdin, grade_tests
    from whet.sandbox.limits import Limits, Result
    from whet.sandbox.pool import Sandbox

__all__ = ["Limits", "Outcome", "Report", "Result", "Sandbox", "grade_calls", "grade_stdin", "grade_tests"]

# Imported when asked for: the processes that run programs import modules of this package, and should hold no others.
_HOMES = {
    "Limits": "limits",
    "Result": "limits",
    "Sandbox": "pool",
    "Outcome": "grading",
    "Report": "grading",
    "grade_calls": "grading",
    "grade_stdin": "grading",
    "grade_tests": "grading",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"whet.sandbox.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
