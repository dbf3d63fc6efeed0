"""Limits of one execution, and its result."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from whet.errors import UserError

Status = Literal[
    "ok", "error", "signal", "timeout", "memory_limit", "output_limit", "disk_limit", "compile_error", "lost"
]


@dataclass(frozen=True)
class Limits:
    """Bounds of one execution. CPU time is bounded by `timeout` too, for each process."""

    timeout: float = 10.0  # seconds of wall time
    memory_mb: int = 512  # address space of each process, and resident memory of all of them
    processes: int = 32  # processes and threads at once
    output_bytes: int = 1 << 20  # of stdout, and as many of stderr
    disk_mb: int = 64  # files in the private directory

    def __post_init__(self) -> None:
        bounds = {
            "timeout": (0.05, 86_400),
            "memory_mb": (32, 1 << 20),
            "processes": (1, 4096),
            "output_bytes": (1, 1 << 30),
            "disk_mb": (1, 1 << 16),
        }
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            whole = name == "timeout" or isinstance(value, int)
            if not number or not whole or not least <= value <= most:
                kind = "a number" if name == "timeout" else "an integer"
                raise UserError(f"sandbox.{name}={value!r}: give {kind} from {least} to {most}")


@dataclass(frozen=True)
class Result:
    """Outcome of one execution.

    `status` and `exit_code` say how the process ended, never that its output is right: exit code 0 is no verdict.
    """

    status: Status
    exit_code: int | None  # minus the signal's number where one ended it; None if the sandbox ended it
    stdout: str
    stderr: str
    seconds: float
    refused: tuple[str, ...] = ()  # system calls and limits that the program ran into
    compile_output: str | None = None  # of the compiler, for languages that have one
    reply: bytes = field(default=b"", repr=False)  # untrusted bytes of the result channel, for the graders

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that the command line prints."""
        values = asdict(self)
        del values["reply"]
        if self.compile_output is None:
            del values["compile_output"]
        values["seconds"] = round(self.seconds, 4)
        values["refused"] = list(self.refused)
        return values
