"""Files in folders that other users can write to: only what this user owns, and nobody else can change, is believed."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from whet.errors import UserError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder(parent: Path | None = None) -> Path:
    """A folder of this user that nobody else can enter, the same for all of the user's processes on this machine.

    It is `whet` in XDG_RUNTIME_DIR where that is the user's own, else `whet-UID` in the temporary folder or `parent`.
    UserError if somebody else made it first.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or os.devnull)
    if parent is None and _is_private(runtime):
        place = runtime / "whet"
    else:
        place = (parent or Path(tempfile.gettempdir())) / f"whet-{os.getuid()}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{place}: this folder, which whet needs for itself, cannot be made ({error.strerror})"
        ) from None
    if not _is_private(place):
        raise UserError(
            f"{place}: whet keeps files there that nobody else may change, but the folder belongs to another user, is "
            "a link, or is open to others; remove it or `chmod 700` it, or set TMPDIR to a folder of your own"
        )
    return place


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


def _is_private(place: Path) -> bool:
    try:
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
