"""The last words of ranks: what each printed, and where each is, asked by a signal that needs no cooperation."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.distributed.host import STACK_SIGNAL, log_file, stack_file
from whet.system import groups
from whet.system.groups import Leader

_SETTLE_SECONDS = 2.0
_PRINTED_LINES = 12
_FRAMES = 8
_HOST_FILE = os.path.join("whet", "cluster", "host.py")


@dataclass(frozen=True)
class Member:
    """A rank as the caller knows it."""

    rank: int
    leader: Leader
    node: str
    hostname: str

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self.leader.pid


@dataclass(frozen=True)
class Diagnostics:
    """Log, stack and exit of a rank."""

    printed: str = ""
    stack: str = ""  # innermost frame first; empty when it is between calls or cannot tell

    def __str__(self) -> str:
        parts = [f"  at (innermost first):\n{_indented(self.stack)}" if self.stack else ""]
        parts.append(f"  last printed:\n{_indented(self.printed)}" if self.printed else "")
        return "\n".join(part for part in parts if part)


def collect(members: Sequence[Member], folder: str) -> dict[int, Diagnostics]:
    """Ask the ranks of this machine for their stacks and read what they left; a dead one only left prints."""
    place = Path(folder)
    before = {member.rank: _size(stack_file(place, member.rank)) for member in members}
    asked = [member for member in members if groups.lives(member.leader)]
    for member in asked:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member.pid, STACK_SIGNAL)
    end = time.monotonic() + _SETTLE_SECONDS
    sizes: list[int] = []
    while time.monotonic() < end:  # until all have written and none writes any more
        time.sleep(0.1)
        last, sizes = sizes, [_size(stack_file(place, member.rank)) for member in asked]
        if sizes == last and all(size > before[member.rank] for size, member in zip(sizes, asked)):
            break
    return {
        member.rank: Diagnostics(
            _tail(log_file(place, member.rank)), _stack(stack_file(place, member.rank), before[member.rank])
        )
        for member in members
    }


def end_processes(leaders: Iterable[Leader]) -> None:
    """SIGKILL to workers of this machine and to all that they started, also to what a dead worker left."""
    for leader in leaders:
        groups.end(leader)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _tail(file: Path) -> str:
    if not file.exists():
        return ""
    with file.open("rb") as content:
        content.seek(max(0, _size(file) - 8192))
        lines = content.read().decode(errors="replace").splitlines()
    return "\n".join(line[:300] for line in lines[-_PRINTED_LINES:])


def _stack(file: Path, start: int) -> str:
    """The innermost frames of the thread that makes the caller's calls, down to the one that made it."""
    if not file.exists():
        return ""
    with file.open("rb") as content:
        content.seek(start)
        blocks = content.read().decode(errors="replace").split("\n\n")
    for block in blocks:
        frames = [line.strip() for line in block.splitlines() if line.strip().startswith("File ")]
        if any(_HOST_FILE in frame for frame in frames) and not any("heartbeat.py" in frame for frame in frames):
            first = next(i for i, frame in enumerate(frames) if _HOST_FILE in frame)
            return "\n".join(frames[:first][:_FRAMES])
    return ""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
