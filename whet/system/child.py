"""A run of whet as a child of another command (`whet sweep`, `whet recipe`), which leaves signals to it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


def run_child(
    command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> tuple[int, bool]:
    """Run a command; return its exit code, 128 + N where signal N ended it, and True if this process was told to stop.

    A run that is told to stop finishes its step, saves, and exits with 0: the second value tells that from its end.
    """
    with subprocess.Popen(command, cwd=cwd, env=env) as process, _passing_on(process) as signals:
        code = process.wait()
    return code if code >= 0 else 128 - code, bool(signals)


@contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Leave signals to the run, which ends after its step; yield the list of those that came.

    A terminal sends an interrupt to both processes; a termination reaches this one alone and is passed on.
    """
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)
        if number == signal.SIGTERM:
            process.send_signal(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
