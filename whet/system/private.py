"""Files in folders that other users can write to: only what this user owns, and nobody else can change, is believed."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from pathlib import Path

from whet.errors import UserError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder(parent: Path | None = None) -> Path:
    """A folder of this user that nobody else can enter, the same for all of the user's processes on this machine.

    It is `whet` in XDG_RUNTIME_DIR where that is the user's own, else `whet-UID` in the temporary folder or `parent`,
    or, where somebody else made that first, a folder in ~/.cache/whet. UserError if none of them can be had.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or os.devnull)
    first = (parent or Path(tempfile.gettempdir())) / f"whet-{os.getuid()}"
    cache = Path("~/.cache/whet").expanduser() / f"run-{socket.gethostname()}"
    places = [first, cache] if parent is not None or not _is_private(runtime) else [runtime / "whet", first, cache]
    for place in places:
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700, parents=place is cache, exist_ok=True)
            if _is_private(place):
                return place
    raise UserError(
        f"whet keeps files in {first} that nobody else may change, but that folder belongs to another user, is a link, "
        f"or is open to others, and {cache} cannot be used either; remove it or `chmod 700` it, or set TMPDIR to a "
        "folder of your own"
    )


def read_own(file: Path, limit: int = 4096) -> str | None:
    """The text of a short regular file that belongs to this user and that nobody else can write; None for any other."""
    try:
        # Neither a link nor a pipe, which could make us wait.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _OTHERS_WRITE:
            return None
        return os.read(descriptor, limit).decode(errors="replace")
    finally:
        os.close(descriptor)


def is_planted(path: Path) -> bool:
    """True if `path` exists in a folder that everybody can write to and belongs to neither this user nor root."""
    try:
        found, around = path.lstat(), path.parent.stat()
    except OSError:
        return False
    return bool(around.st_mode & stat.S_IWOTH) and found.st_uid not in (os.getuid(), 0)


def _is_private(place: Path) -> bool:
    try:
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
