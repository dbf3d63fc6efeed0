"""Checkpoints as facts: written to the side, fsynced, checksummed, renamed; pruned only after the new one stands.

What is inside a checkpoint is the caller's business; the store only knows files. Hidden side folders:
`.global_step_N.tmp-*` is being written, `.global_step_N.was-*` is being replaced, `.global_step_N.gone-*` is being
deleted. A process killed at any instant leaves at worst such folders behind, and the next start clears them. Only
checkpoints of the same run are ever deleted: anything else that is in the way of a new one is renamed to
`global_step_N.aside-*`.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import fsync_folder, write_text
from whet.checkpoint.judging import STEP, Verdict, judge, read_all
from whet.checkpoint.manifest import MANIFEST, Checkpoint, UnusableError, read_manifest, verify, write_manifest
from whet.errors import UserError

_SIDE = re.compile(r"\.(global_step_[0-9]+)\.(tmp|was|gone)-\w+")
NO_ROOM = 1_000_000  # bytes free: a disk that counts as full
LOAD, FIND = "trainer.load_checkpoint_path", "trainer.find_last_checkpoint"


def _say_nothing(message: str) -> None:
    """Ignore a message."""


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
        self._run: str | None = None  # known once the run has a checkpoint
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clear_side_folders()
        except OSError as error:
            raise UserError(f"trainer.save_checkpoint_path: {self.folder}: {error}") from error

    def continue_from(self, checkpoint: Checkpoint | None) -> None:
        """Save as the run that wrote this checkpoint, if it is one of this folder."""
        self._run = self._identify(checkpoint)

    @contextmanager
    def writing(self, step: int, meta: dict[str, Any]) -> Iterator[Path]:
        """Yield a side folder to write files into; when the block ends well it is the checkpoint of `step`."""
        target = self.folder / f"global_step_{step}"
        self._run = self._run or self._identify(None)
        side, was = _side_name(target, "tmp"), _side_name(target, "was")
        try:
            side.mkdir()
            yield side
            write_manifest(side, step, self._next_serial(), meta, self._run)
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
        """Return the newest checkpoint whose checksums hold; report damaged ones and pass over them.

        Raise a `UserError` where that would start over beside checkpoints, or go back behind one that may be fine.
        """
        verdict = judge(self.folder)
        obstacle = verdict.obstacle()
        if obstacle is not None:
            raise UserError(f"trainer.save_checkpoint_path: {obstacle}\n{_choices(verdict)}")
        for report in verdict.reports():
            self.warn(report)
        return verdict.good

    def refuse_usable(self) -> None:
        """Raise a `UserError` if the folder holds a good checkpoint; name those that cannot be used."""
        verdict = judge(self.folder)
        if verdict.good is not None:
            raise UserError(
                f"{FIND}=false: {self.folder} already holds a run, and starting over would mix the two. Choose another "
                f"trainer.experiment_name, delete that folder, or continue it with {FIND}=true."
            )
        for report in verdict.reports():
            self.warn(f"{report}; it is left as it is, and this run starts over beside it as {FIND}=false says")

    def open(self, path: str | Path) -> Checkpoint:
        """Open what `trainer.load_checkpoint_path` names: a checkpoint, or a run folder for its last one."""
        path = Path(os.path.expanduser(path))
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
            self.warn(report)
        return verdict.good

    def _publish(self, side: Path, target: Path, was: Path) -> None:
        """Rename into place. A checkpoint of the same step steps aside first; should the process die between the two
        renames, the next start puts it back."""
        replacing = os.path.lexists(target)
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
        """Delete what the limits do not keep. Only checkpoints of this run count, and only those are deleted."""
        self._clear_replaced(replaced, newest)
        standing = self._own()
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
                _remove(gone)

    def _clear_replaced(self, replaced: Path, target: Path) -> None:
        """Delete what `target` has replaced if it was the same step of the same run, else give it another name."""
        if not os.path.lexists(replaced):
            return
        try:
            before, now = read_manifest(replaced), read_manifest(target)
            same = before.step == now.step and before.run in (None, now.run)
        except UnusableError:
            same = False
        if same:
            # Renamed first: half of it must not be taken for something that is worth keeping.
            gone = _side_name(target, "gone")
            os.rename(replaced, gone)
            _remove(gone)
        else:
            aside = target.with_name(f"{target.name}.aside-{os.urandom(4).hex()}")
            os.rename(replaced, aside)
            self.warn(f"{target} was no checkpoint of this step that this run could use; it is kept as {aside}")

    def _own(self) -> list[Checkpoint]:
        """Readable checkpoints of this run, the last written first."""
        return [found for found in read_all(self.folder)[0] if found.run in (None, self._run)]

    def _next_serial(self) -> int:
        return max((found.serial for found in read_all(self.folder)[0]), default=0) + 1

    def _identify(self, continued: Checkpoint | None) -> str:
        """The run whose checkpoints are in the folder; a new one if there are none, or several."""
        runs = {found.run for found in read_all(self.folder)[0] if found.run is not None}
        if continued is not None and continued.run in runs:
            return continued.run
        return runs.pop() if len(runs) == 1 else uuid.uuid4().hex

    def _clear_side_folders(self) -> None:
        for side in list(self.folder.iterdir()):
            match = _SIDE.fullmatch(side.name)
            if match is None:
                continue
            target = self.folder / match[1]
            if match[2] != "was":
                _remove(side)
            elif not os.path.lexists(target):
                os.rename(side, target)
            elif _is_good(target):
                self._clear_replaced(side, target)
            else:
                self.warn(f"{side} is the checkpoint that {target} was to replace; both are left as they are")
        fsync_folder(self.folder)

    def _write_tracker(self) -> None:
        """A summary for people's scripts. Nothing here ever reads it."""
        standing = self._own()
        best = _best(standing)
        summary = {
            "last_global_step": standing[0].step if standing else None,
            "best_global_step": best.step if best else None,
            "best_val_score": best.meta["score"] if best else None,
        }
        write_text(self.folder / "checkpoint_tracker.json", json.dumps(summary, indent=2) + "\n")

    def _not_saved(self, target: Path, trouble: str) -> str:
        good = judge(self.folder).good
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
    return read_all(Path(folder))[0]


def best_of(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint with the highest score, or None where none has one."""
    return _best(checkpoints)


def _side_name(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{kind}-{os.urandom(4).hex()}")


def _remove(path: Path) -> None:
    """Delete a folder; of a link to one, the link."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        shutil.rmtree(path)


def _is_good(path: Path) -> bool:
    try:
        verify(path)
    except UnusableError:
        return False
    return True


def _choices(verdict: Verdict) -> str:
    """Name the user's choices when a checkpoint cannot be used."""
    which = str(verdict.good.path) if verdict.good is not None else f"{verdict.folder}/global_step_N"
    start_over = "" if verdict.good is not None else f" {FIND}=false alone starts over beside them."
    return (
        "Nothing was changed. Mend them (permissions, disk, a backup, the version of whet that wrote them) or move "
        f"them away; or continue from a checkpoint of your choice with {FIND}=false {LOAD}={which}; or start a new run "
        f"under another trainer.experiment_name.{start_over}"
    )


def _best(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """The highest score; of equals the later one, which is more often kept anyway."""
    scored = [found for found in checkpoints if _is_score(found.meta.get("score"))]
    return max(scored, key=lambda found: (found.meta["score"], found.serial), default=None)


def _is_score(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _disk_trouble(error: BaseException, folder: Path) -> str | None:
    """Return the disk problem that made saving fail, if it was one."""
    said = str(error).partition("\n")[0]
    if isinstance(error, OSError):
        return said
    if not isinstance(error, Exception):
        return None
    # torch and safetensors report a disk that takes no more in exceptions of their own.
    if any(words in str(error) for words in _FULL):
        return said
    return f"the disk is full ({said})" if shutil.disk_usage(folder).free < NO_ROOM else None


_FULL = (*map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)), "file write failed")
