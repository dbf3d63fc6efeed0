"""Files that survive a power cut: written to the side, fsynced, renamed into place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIDE_MARK = ".tmp-"  # in the hidden name of a file that is not finished


def fsync_folder(path: Path) -> None:
    """Make the names in a folder (created, renamed, removed) durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make the bytes of a file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a side file; when the block ends well it becomes `path` in one step, otherwise it is removed.

    With `durable` false nothing waits for the disk: after a power cut the file may be missing or damaged.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}{SIDE_MARK}", dir=path.parent)
    os.close(descriptor)
    side = Path(name)
    try:
        # mkstemp makes files private; what replaces an ordinary file has an ordinary file's permissions.
        os.chmod(side, 0o666 & ~_umask())
        yield side
        if durable:
            fsync_file(side)
        os.replace(side, path)
    except BaseException:
        with suppress(OSError):
            side.unlink(missing_ok=True)
        raise
    if durable:
        fsync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace a whole file by `text`: readers see the old one or the new one, never a part."""
    with replacing(path) as side:
        side.write_text(text, encoding="utf-8")


def append_line(path: Path, line: str) -> None:
    """Append one line and fsync it; a line that a killed process left torn is ended first."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        data = memoryview((("\n" if torn else "") + line + "\n").encode("utf-8"))
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
