"""Hostile programs, one by one, in every way of confinement that this machine allows."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox.conftest import Host
from sandbox.hostile_inside import INSIDE
from sandbox.hostile_outside import OUTSIDE

from whet.sandbox.pool import Sandbox

PROGRAMS = OUTSIDE | INSIDE


def processes_below(pid: int) -> list[int]:
    """Processes that descend from one."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (thread / "children").read_text().split()):
            found += [child, *processes_below(child)]
    return found


def files_left(sandbox: Sandbox) -> list[str]:
    """Files in the private directories of a pool."""
    return [name for _, folders, names in os.walk(sandbox._nursery._base) for name in (*names, *folders) if name > "9"]


def test_there_are_sixty_programs() -> None:
    assert len(PROGRAMS) >= 60


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_is_contained(sandbox: Sandbox, host: Host, name: str) -> None:
    hostile = PROGRAMS[name]
    began = time.monotonic()
    sandbox.run("secret = 'the-previous-program'")
    limits = sandbox.limits if "timeout" in hostile.expected else replace(sandbox.limits, timeout=hostile.most_seconds)
    result = sandbox.run(f"T = {host.targets!r}\n{hostile.source}", "given", limits)
    assert "ESCAPED" not in result.stdout + result.stderr, result
    assert "SECRET" not in result.stdout + result.stderr
    assert result.status in hostile.expected if hostile.expected else result.status != "lost", result
    assert result.seconds < limits.timeout + 2
    assert time.monotonic() - began < limits.timeout + 8  # machines of a test service are slow at times
    host.check()
    for worker in sandbox._free:
        assert processes_below(worker.pid) == []
    assert files_left(sandbox) == []
    assert sandbox.run("print(input())", stdin="still there").stdout == "still there\n"
