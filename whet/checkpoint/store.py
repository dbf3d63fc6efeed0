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
from whet.checkpoint.manifest import Checkpoint, UnusableError, candidates, read_all, read_manifest, write_manifest
from whet.errors import UserError

_SIDE = re.compile(r"\.(global_step_[0-9]+)\.(tmp|was|gone)-\w+")
NO_ROOM = 1_000_000  # bytes free: a disk that counts as full


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
        if not candidates(self.folder):
            return None
        from whet.checkpoint.judging import last_good  # a new run has nothing to judge

        return last_good(self.folder, self.warn)

    def refuse_usable(self) -> None:
        """Raise a `UserError` if the folder holds a good checkpoint; name those that cannot be used."""
        from whet.checkpoint.judging import refuse_usable

        refuse_usable(self.folder, self.warn)

    def open(self, path: str | Path) -> Checkpoint:
        """Open what `trainer.load_checkpoint_path` names: a checkpoint, or a run folder for its last one."""
        from whet.checkpoint.judging import open_named

        return open_named(Path(os.path.expanduser(path)), self.warn)

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
        from whet.checkpoint.judging import judge

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
    from whet.checkpoint.judging import verify

    try:
        verify(path)
    except UnusableError:
        return False
    return True


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
