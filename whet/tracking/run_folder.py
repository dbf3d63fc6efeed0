"""The folder of one run: made, probed and locked before any work starts.

Layout: `config.yaml`, `metrics.jsonl`, `curves.svg`, `run.log`, `samples/`, and the checkpoints `global_step_N/`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
from pathlib import Path
from types import TracebackType

from whet.checkpoint.durable import SIDE_MARK, fsync_file, write_text
from whet.errors import UserError

KEY = "trainer.save_checkpoint_path"
GB = 1e9


class RunFolder:
    """A run's folder, held by this process until `close`."""

    def __init__(self, path: str | Path, needed_bytes: int = 0) -> None:
        """Create the folder, prove that it can be written, lock it, and check that `needed_bytes` are free."""
        self.path = Path(os.path.expanduser(path)).absolute()  # Path.expanduser raises for ~nobody
        self._lock: int | None = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path)
            _probe(self.path)
            _clear_side_files(self.path, self.samples)
        except OSError as error:
            self.close()
            raise UserError(_unusable(self.path, error)) from error
        except BaseException:
            self.close()
            raise
        self.check_free(needed_bytes)

    @property
    def config(self) -> Path:
        """The resolved config, as the run was started with it."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One JSON object per step."""
        return self.path / "metrics.jsonl"

    @property
    def curves(self) -> Path:
        """Charts of the metrics, as of the latest validation."""
        return self.path / "curves.svg"

    @property
    def samples(self) -> Path:
        """Parquet files of every sample."""
        return self.path / "samples"

    @property
    def log(self) -> Path:
        """Path of the console's output, in plain text."""
        return self.path / "run.log"

    def free_bytes(self) -> int:
        """Return the free bytes of the folder's disk."""
        return shutil.disk_usage(self.path).free

    def check_free(self, needed_bytes: int) -> None:
        """Refuse to start when the disk cannot hold what the run will write."""
        free = self.free_bytes()
        if free < needed_bytes:
            self.close()
            raise UserError(
                f"{KEY}: {self.path} needs about {needed_bytes / GB:.1f} GB for checkpoints, but its disk has "
                f"{free / GB:.1f} GB free. Free some space, choose another {KEY}, or lower trainer.save_limit."
            )

    def write_config(self, yaml: str) -> None:
        """Record the config of this start; a config from an earlier start is replaced whole."""
        try:
            write_text(self.config, yaml)
        except OSError as error:
            raise UserError(_unusable(self.config, error)) from error

    def close(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _lock(folder: Path) -> int | None:
    """Hold the folder's lock file and return its descriptor, or raise naming the process that holds it.

    A POSIX record lock and not flock: forked reward workers inherit a flock, and one that outlives a killed trainer
    would keep the folder locked.
    """
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise UserError(
                f"{KEY}: {folder} is in use by another run (process {holder}). Wait for it to end or stop it, or "
                "give this run its own trainer.experiment_name."
            ) from None
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            return None  # some cluster file systems are mounted without locks; that must not forbid training
        raise
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return descriptor


def _probe(folder: Path) -> None:
    """Write, fsync and remove a file: permissions, read-only mounts, quotas and full disks all show here."""
    probe = folder / f".probe-{os.getpid()}"
    try:
        probe.write_bytes(b"\0" * 4096)
        fsync_file(probe)
    finally:
        probe.unlink(missing_ok=True)


def _clear_side_files(*folders: Path) -> None:
    """Remove files that a killed run was still writing to the side."""
    for folder in folders:
        for path in folder.glob(f".*{SIDE_MARK}*"):
            if path.is_file():
                path.unlink()


def _unusable(path: Path, error: OSError) -> str:
    obstacle = next((part for part in [path, *path.parents] if part.exists() and not part.is_dir()), None)
    if obstacle is not None:
        reason = f"{obstacle} is a file, not a folder"
    else:
        reason = error.strerror or str(error)
    return f"{KEY}: cannot write to {path}: {reason}. Choose a folder that this user can write to, on a disk with room."
