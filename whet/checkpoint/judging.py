"""Judgement over the checkpoints in a run folder: whose contents hold, which is the newest good one.

Damaged checkpoints are passed over, because nothing brings them back. One that may be fine (another format, not
readable now, files added) is passed over only if it is older than a good one: otherwise a person has to decide.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from whet.checkpoint.manifest import (
    MANIFEST,
    STEP,
    AddedFilesError,
    Checkpoint,
    DamagedError,
    UnreadableError,
    UnusableError,
    checkpoint_of,
    read_all,
    read_body,
    reason,
    sha256,
    step_of,
)
from whet.errors import UserError

# Files that are loaded wherever they stand: one that was added later changes the run.
LOADED_NAMES = ("carried.json", "optimizer.pt", "rng.pt")
LOADED_FOLDERS = ("huggingface", "lora_adapter")
LOADED_SUFFIXES = (".safetensors", ".bin", ".pt", ".json", ".jinja", ".model", ".py")
LOAD, FIND = "trainer.load_checkpoint_path", "trainer.find_last_checkpoint"
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


def verify(folder: Path) -> Checkpoint:
    """Check every file against the manifest, contents included; raise an `UnusableError` with the first thing wrong."""
    body = read_body(folder)
    for name, recorded in body["files"].items():
        size = _size(folder, name)
        if size != recorded["size"]:
            raise DamagedError(f"{name} has {size} bytes instead of {recorded['size']}")
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        digests = pool.map(lambda name: _digest(folder, name), body["files"])
        for (name, recorded), digest in zip(body["files"].items(), digests):
            if digest != recorded["sha256"]:
                raise DamagedError(f"{name} does not match its checksum")
    _check_added(folder, set(body["files"]))
    return checkpoint_of(folder, body)


def _size(folder: Path, name: str) -> int:
    try:
        found = os.stat(folder / name)
    except (FileNotFoundError, NotADirectoryError):
        raise DamagedError(f"{name} is missing") from None
    except OSError as error:
        raise UnreadableError(f"{name}: {reason(error)}") from error
    if not stat.S_ISREG(found.st_mode):
        raise DamagedError(f"{name} is not a file")
    return found.st_size


def _digest(folder: Path, name: str) -> str:
    try:
        return sha256(folder / name)
    except OSError as error:
        raise UnreadableError(f"{name}: {reason(error)}") from error


def _check_added(folder: Path, listed: set[str]) -> None:
    names = (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if _is_loaded(path))
    added = next((name for name in names if name not in listed), None)
    if added is not None:
        raise AddedFilesError(f"{added} was not there when it was saved; move it away")


def _is_loaded(path: Path) -> bool:
    return path.name in LOADED_NAMES or (path.parent.name in LOADED_FOLDERS and path.suffix in LOADED_SUFFIXES)


def last_good(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest good checkpoint, and report those that were passed over; see `CheckpointStore.last`."""
    verdict = judge(folder)
    obstacle = verdict.obstacle()
    if obstacle is not None:
        raise UserError(f"trainer.save_checkpoint_path: {obstacle}\n{_choices(verdict)}")
    for report in verdict.reports():
        warn(report)
    return verdict.good


def refuse_usable(folder: Path, warn: Callable[[str], None]) -> None:
    """Raise a `UserError` if the folder holds a good checkpoint; name those that cannot be used."""
    verdict = judge(folder)
    if verdict.good is not None:
        raise UserError(
            f"{FIND}=false: {folder} already holds a run, and starting over would mix the two. Choose another "
            f"trainer.experiment_name, delete that folder, or continue it with {FIND}=true."
        )
    for report in verdict.reports():
        warn(f"{report}; it is left as it is, and this run starts over beside it as {FIND}=false says")


def open_named(path: Path, warn: Callable[[str], None]) -> Checkpoint:
    """Open what `trainer.load_checkpoint_path` names: a checkpoint, or a run folder for its last one."""
    if not os.path.isdir(path):
        raise UserError(f"{LOAD}: {path} is not a folder. Give a global_step_N folder or the run folder above it.")
    if (path / MANIFEST).exists() or STEP.fullmatch(path.name):
        try:
            return verify(path)
        except UnusableError as problem:
            raise UserError(f"{LOAD}: {path} {problem.word}: {problem}. Choose another checkpoint.") from problem
    verdict = judge(path)
    if verdict.good is None:
        reasons = "".join(f"\n  {report}" for report in verdict.reports())
        raise UserError(f"{LOAD}: there is no usable checkpoint (global_step_N) in {path}.{reasons}")
    obstacle = verdict.obstacle()
    if obstacle is not None:
        raise UserError(f"{LOAD}: {obstacle}\nName the global_step_N to start from.")
    for report in verdict.reports():
        warn(report)
    return verdict.good


def _choices(verdict: Verdict) -> str:
    """Name the user's choices when a checkpoint cannot be used."""
    which = str(verdict.good.path) if verdict.good is not None else f"{verdict.folder}/global_step_N"
    start_over = "" if verdict.good is not None else f" {FIND}=false alone starts over beside them."
    return (
        "Nothing was changed. Mend them (permissions, disk, a backup, the version of whet that wrote them) or move "
        f"them away; or continue from a checkpoint of your choice with {FIND}=false {LOAD}={which}; or start a new run "
        f"under another trainer.experiment_name.{start_over}"
    )
