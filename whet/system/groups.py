"""Process groups that whet made, and ending them without ever touching another.

A number alone names no group: the system gives numbers of the dead to others, and a process that leads no group of its
own is in the group of whoever started it, often the user's shell. A group is therefore known by its leader's number and
start time, and is ended only while that is what the number still means.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_UNKNOWN = -1  # where there is no /proc


@dataclass(frozen=True)
class Leader:
    """A process that leads a group of its own; its start time tells it from later ones with the same number."""

    pid: int
    started: int  # clock ticks since the machine was booted
    session: int


@dataclass(frozen=True)
class _Process:
    """A living or unreaped process, as /proc/PID/stat describes it."""

    group: int
    session: int
    started: int
    is_zombie: bool


def lead() -> Leader:
    """Make this process the leader of a group of its own, if it is not; call it before starting others."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    return leader_of(os.getpid())


def leader_of(pid: int) -> Leader:
    """The identity of a process that was just started as the leader of its group, before it can have been reaped."""
    found = _read(pid)
    if found is None:
        return Leader(pid, _UNKNOWN, os.getsid(pid))
    return Leader(pid, found.started, found.session)


def lives(leader: Leader) -> bool:
    """True if the number still belongs to this process, which may be a zombie."""
    found = _read(leader.pid)
    return found is not None and found.started == leader.started


def end(leader: Leader) -> bool:
    """Send SIGKILL to the group of a leader, also when the leader is gone; False if nothing of it was left."""
    found = _read(leader.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if leader.started == _UNKNOWN:
            _end_by_number(leader.pid)
            return True
        if found is not None and found.started == leader.started:
            if found.group == leader.pid:
                os.killpg(leader.pid, signal.SIGKILL)
            else:  # it has left its group, or never led one
                os.kill(leader.pid, signal.SIGKILL)
            return True
        # The system does not give a number away while a group of that number has members: another process under the
        # leader's number means that the group is gone.
        if found is None and _is_orphaned_group_of(leader):
            os.killpg(leader.pid, signal.SIGKILL)
            return True
    return False


def end_own() -> None:
    """Send SIGKILL to this process, and to its group if it leads it."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _is_orphaned_group_of(leader: Leader) -> bool:
    members = [
        process
        for name in os.listdir("/proc")
        if name.isdecimal()
        and (process := _read(int(name))) is not None
        and process.group == leader.pid
        and not process.is_zombie
    ]
    return bool(members) and all(each.session == leader.session and each.started >= leader.started for each in members)


def _end_by_number(pid: int) -> None:
    """End a process group without start times: only while its leader exists and leads it."""
    if os.getpgid(pid) == pid:
        os.killpg(pid, signal.SIGKILL)


def _read(pid: int) -> _Process | None:
    """Fields 3, 5, 6 and 22 of proc(5); the name in parentheses before them may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return _Process(int(fields[2]), int(fields[3]), int(fields[19]), is_zombie=fields[0] in (b"Z", b"X"))
    except (OSError, IndexError, ValueError):  # it has ended, perhaps just now
        return None
