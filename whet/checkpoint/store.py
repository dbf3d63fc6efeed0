"""Checkpoints as facts: written to the side, fsynced, checksummed, renamed; pruned only after the new one stands.

What is inside a checkpoint is the caller's business; the store only knows files. Hidden side folders:
`.global_step_N.tmp-*` is being written, `.global_step_N.was-*` is being replaced, `.global_step_N.gone-*` is being
deleted. A process killed at any instant leaves at worst such folders behind, and the next start clears them.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import fsync_folder, write_text
from whet.checkpoint.manifest import MANIFEST, Checkpoint, DamagedError, read_manifest, verify, write_manifest
from whet.errors import UserError

_STEP = re.compile(r"global_step_(\d+)")
_SIDE = re.compile(r"\.(global_step_\d+)\.(tmp|was|gone)-\w+")
NO_ROOM = 1_000_000  # bytes free: a disk that counts as full


def _say_nothing(message: str) -> None:
    """For callers who only want the answer."""


class CheckpointStore:
    """The checkpoints of one run. The caller holds the run folder's lock."""

    def __init__(
        self,
        folder: str | Path,
        save_limit: int = -1,
        keep_best: bool = True,
        warn: Callable[[str], None] = _say_nothing,
    ) -> None:
        """Keep the newest `save_limit` (-1: all) and, with `keep_best`, the one with the highest `meta["score"]`."""
        self.folder = Path(folder)
        self.save_limit = save_limit
        self.keep_best = keep_best
        self.warn = warn
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear_side_folders()

    @contextmanager
    def writing(self, step: int, meta: dict[str, Any]) -> Iterator[Path]:
        """Yield a side folder to write files into; when the block ends well it is the checkpoint of `step`."""
        target = self.folder / f"global_step_{step}"
        side, was = _side_name(target, "tmp"), _side_name(target, "was")
        try:
            side.mkdir()
            yield side
            write_manifest(side, step, self._next_serial(), meta)
            self._publish(side, target, was)
        except BaseException as error:
            trouble = _disk_trouble(error, self.folder)  # asked before removing what fills the disk
            shutil.rmtree(side, ignore_errors=True)
            if trouble is None:
                raise
            raise UserError(self._not_saved(target, trouble)) from error
        try:
            self._prune(newest=target, replaced=was)
            self._write_tracker()
        except OSError as error:
            self.warn(f"checkpoint {target} is saved, but clearing away older ones failed: {error}")

    def last(self) -> Checkpoint | None:
        """The newest checkpoint whose checksums hold; damaged ones are reported and passed over."""
        return _last_good(self.folder, self.warn)

    def open(self, path: str | Path) -> Checkpoint:
        """The checkpoint that `trainer.load_checkpoint_path` names: a checkpoint, or a run folder for its last one."""
        path, key = Path(path).expanduser(), "trainer.load_checkpoint_path"
        if not path.is_dir():
            raise UserError(f"{key}: {path} is not a folder. Give a global_step_N folder or the run folder above it.")
        if (path / MANIFEST).exists() or _STEP.fullmatch(path.name):
            try:
                return verify(path)
            except DamagedError as damage:
                raise UserError(f"{key}: {path} is damaged: {damage}. Choose another checkpoint.") from damage
        reports: list[str] = []
        found = _last_good(path, reports.append)
        if found is None:
            reasons = "".join(f"\n  {report}" for report in reports)
            raise UserError(f"{key}: there is no usable checkpoint (global_step_N) in {path}.{reasons}")
        for report in reports:
            self.warn(report)
        return found

    def _publish(self, side: Path, target: Path, was: Path) -> None:
        """Rename into place. A checkpoint of the same step steps aside first; should the process die between the two
        renames, the next start puts it back."""
        replacing = target.exists()
        if replacing:
            os.rename(target, was)
        try:
            os.rename(side, target)
        except OSError:
            if replacing:
                os.rename(was, target)
            raise
        fsync_folder(self.folder)

    def _prune(self, newest: Path, replaced: Path) -> None:
        """Delete what the limits do not keep. Damaged ones count for nothing and are left for people to look at."""
        if replaced.exists():
            shutil.rmtree(replaced)
        standing = _readable(self.folder)
        limit = len(standing) if self.save_limit < 0 else self.save_limit
        kept = {newest, *(found.path for found in standing[:limit])}
        best = _best(standing)
        if self.keep_best and best is not None:
            kept.add(best.path)
        for checkpoint in standing:
            if checkpoint.path not in kept:
                # Renamed first: a kill in the middle must not leave half a checkpoint under a checkpoint's name.
                gone = _side_name(checkpoint.path, "gone")
                os.rename(checkpoint.path, gone)
                shutil.rmtree(gone)

    def _next_serial(self) -> int:
        return max((found.serial for found in _readable(self.folder)), default=0) + 1

    def _clear_side_folders(self) -> None:
        for side in list(self.folder.iterdir()):
            match = _SIDE.fullmatch(side.name)
            if match is None:
                continue
            target = self.folder / match[1]
            if match[2] == "was" and not target.exists():
                os.rename(side, target)
            else:
                shutil.rmtree(side)
        fsync_folder(self.folder)

    def _write_tracker(self) -> None:
        """A summary for people's scripts. Nothing here ever reads it."""
        standing = _readable(self.folder)
        best = _best(standing)
        summary = {
            "last_global_step": standing[0].step if standing else None,
            "best_global_step": best.step if best else None,
            "best_val_score": best.meta["score"] if best else None,
        }
        write_text(self.folder / "checkpoint_tracker.json", json.dumps(summary, indent=2) + "\n")

    def _not_saved(self, target: Path, trouble: str) -> str:
        good = _last_good(self.folder)
        if good is None:
            standing = "No checkpoint of this run is complete yet: the run has to start from the beginning."
        else:
            standing = f"The last good checkpoint is {good.path}; the same command resumes from it."
        return (
            f"trainer.save_checkpoint_path: could not save {target}: {trouble}. {standing} "
            "Free disk space, lower trainer.save_limit, or move the run folder to a larger disk first."
        )


def read_checkpoints(folder: str | Path) -> list[Checkpoint]:
    """Return the checkpoints in a run folder, the last written first, without changing anything in it."""
    return _readable(Path(folder))


def best_of(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint with the highest score, or None where none has one."""
    return _best(checkpoints)


def _side_name(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{kind}-{os.urandom(4).hex()}")


def _candidates(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True) if path.is_dir()]


def _readable(folder: Path, warn: Callable[[str], None] = _say_nothing) -> list[Checkpoint]:
    """Checkpoints with a readable manifest, the last written first; file contents are not read."""
    found = []
    for path in _candidates(folder):
        try:
            found.append(read_manifest(path))
        except DamagedError as damage:
            warn(_passed_over(path, damage))
    # By the order of writing, not by step: a run sent back to an early step must resume where it now is.
    return sorted(found, key=lambda checkpoint: checkpoint.serial, reverse=True)


def _last_good(folder: Path, warn: Callable[[str], None] = _say_nothing) -> Checkpoint | None:
    for checkpoint in _readable(folder, warn):
        try:
            return verify(checkpoint.path)
        except DamagedError as damage:
            warn(_passed_over(checkpoint.path, damage))
    return None


def _passed_over(path: Path, damage: DamagedError) -> str:
    return f"checkpoint {path} is damaged and was passed over: {damage}"


def _best(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """The highest score; of equals the later one, which is more often kept anyway."""
    scored = [found for found in checkpoints if _is_score(found.meta.get("score"))]
    return max(scored, key=lambda found: (found.meta["score"], found.serial), default=None)


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _disk_trouble(error: BaseException, folder: Path) -> str | None:
    """What is wrong with the disk, when that is why saving failed."""
    said = str(error).partition("\n")[0]
    if isinstance(error, OSError):
        return said
    if not isinstance(error, Exception):
        return None
    # torch and safetensors report a full disk in exceptions of their own.
    if any(words in said for words in (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))):
        return said
    return f"the disk is full ({said})" if shutil.disk_usage(folder).free < NO_ROOM else None
