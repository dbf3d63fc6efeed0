"""Judgement over the checkpoints in a run folder: which one is the newest good one, and what stands beside it.

Damaged checkpoints are passed over, because nothing brings them back. One that may be fine (another format, not
readable now, files added) is passed over only if it is older than a good one: otherwise a person has to decide.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from whet.checkpoint.manifest import Checkpoint, DamagedError, UnusableError, read_manifest, verify
from whet.errors import UserError

STEP = re.compile(r"global_step_([0-9]+)")
_SHOWN = 5  # problems that a message lists


@dataclass(frozen=True, slots=True)
class Verdict:
    """The newest good checkpoint of a folder, and those that were passed over to find it."""

    folder: Path
    good: Checkpoint | None
    passed: dict[Path, UnusableError]
    runs: tuple[str, ...]  # the runs that wrote those with readable manifests

    def reports(self) -> list[str]:
        """One sentence for each checkpoint that was passed over."""
        return [f"checkpoint {path} {problem.word} and was passed over: {problem}" for path, problem in self._listed()]

    def obstacle(self) -> str | None:
        """The reason why a person has to decide before a run goes on here, or None."""
        if len(self.runs) > 1:
            return (
                f"{self.folder} holds checkpoints of {len(self.runs)} runs, and it is not clear which one to continue."
            )
        if self.good is None and self.passed:
            return f"none of the checkpoints in {self.folder} can be used:{self._lines(self.passed)}"
        held = {
            path: problem
            for path, problem in self.passed.items()
            if not isinstance(problem, DamagedError) and self.good is not None and step_of(path) > self.good.step
        }
        if held:
            assert self.good is not None
            return f"checkpoints newer than {self.good.path.name} may be fine but cannot be used:{self._lines(held)}"
        return None

    def _listed(self) -> list[tuple[Path, UnusableError]]:
        return sorted(self.passed.items(), key=lambda item: step_of(item[0]), reverse=True)

    def _lines(self, problems: dict[Path, UnusableError]) -> str:
        listed = [(path, problem) for path, problem in self._listed() if path in problems]
        lines = [f"\n  {path} {problem.word}: {problem}" for path, problem in listed[:_SHOWN]]
        return "".join(lines) + (f"\n  and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else "")


def judge(folder: Path) -> Verdict:
    """Find the checkpoint written last whose checksums hold."""
    standing, passed = read_all(folder)
    runs = tuple(sorted({found.run for found in standing if found.run is not None}))
    for found in standing:
        try:
            return Verdict(folder, verify(found.path), passed, runs)
        except UnusableError as problem:
            passed[found.path] = problem
    return Verdict(folder, None, passed, runs)


def read_all(folder: Path) -> tuple[list[Checkpoint], dict[Path, UnusableError]]:
    """Checkpoints by their manifests alone, the last written first, and those whose manifests cannot be used."""
    found: list[Checkpoint] = []
    problems: dict[Path, UnusableError] = {}
    for path in _candidates(folder):
        try:
            found.append(read_manifest(path))
        except UnusableError as problem:
            problems[path] = problem
    # By the order of writing, not by step: a run sent back to an early step must resume where it now is.
    return sorted(found, key=lambda checkpoint: checkpoint.serial, reverse=True), problems


def step_of(path: Path) -> int:
    """The step that the name of a checkpoint's folder says."""
    match = STEP.fullmatch(path.name)
    return int(match[1]) if match else -1


def _candidates(folder: Path) -> list[Path]:
    """Everything with the name of a checkpoint, links to nowhere included, highest step first."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder}: its checkpoints cannot be listed: {error.strerror or error}") from error
    return sorted((folder / name for name in names if STEP.fullmatch(name)), key=step_of, reverse=True)
