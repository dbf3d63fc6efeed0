"""Private directories: where a program's files are, made anew for each execution and removed after it.

Nothing in a directory is trusted when it is removed: it may hold links, folders without permissions, and trees deeper
than any recursion or path length. All processes that could change it are dead by then.
"""

from __future__ import annotations

import contextlib
import os
import stat
from itertools import count

from whet.sandbox import namespaces
from whet.sandbox.paths import BOX

MOST_ENTRIES = 16384  # files of one program


class Tmpfs:
    """A tmpfs in the zygote's mount namespace; the kernel bounds its size and number of files."""

    path = BOX

    def __init__(self) -> None:
        self._pristine: tuple[int, ...] = ()
        self._disk_mb = 0

    def open(self, disk_mb: int) -> None:
        """Have an empty directory at `path`."""
        if self._pristine and disk_mb == self._disk_mb:
            return
        if self._pristine:
            namespaces.unmount_box()
        namespaces.mount_box(disk_mb)
        self._disk_mb, self._pristine = disk_mb, _state(BOX)

    def close(self) -> None:
        """Forget everything in it: only a directory that nobody has touched is used again."""
        if _state(BOX) != self._pristine or os.listdir(BOX):
            namespaces.unmount_box()
            self._pristine = ()

    def end(self) -> None:
        """Do nothing: it ends with the namespace."""

    def make_executable(self, name: str) -> None:
        """Do nothing: a program may set the mode of its files here."""

    def usage(self) -> int:
        """Return 0: the kernel enforces the size."""
        return 0


class Folder:
    """A folder on the host's disk. Its size is measured while a program runs."""

    def __init__(self, above: str) -> None:
        self._above = above
        self._names = count()
        self._pristine: tuple[int, ...] = ()
        self.path = ""  # no two programs have the same, unless the first has not touched its folder

    def open(self, disk_mb: int) -> None:
        """Have an empty directory at `path`."""
        if self._pristine:
            return
        self.path = f"{self._above}/{next(self._names)}"
        os.mkdir(self.path, 0o700)
        self._pristine = _state(self.path)

    def close(self) -> None:
        """Remove it with everything in it: only a directory that nobody has touched is used again."""
        if self._pristine and _state(self.path) == self._pristine and not os.listdir(self.path):
            self._pristine = _state(self.path)  # listing it is an access too
            return
        self.end()

    def end(self) -> None:
        """Remove it, used or not."""
        self._pristine = ()
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return
        except OSError:
            remove(self.path)

    def make_executable(self, name: str) -> None:
        """Let a file be executed: the filter ignores the mode that a compiler sets."""
        with contextlib.suppress(OSError):
            descriptor = os.open(f"{self.path}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            os.fchmod(descriptor, 0o700)
            os.close(descriptor)

    def usage(self) -> int:
        """Return the bytes that its files take; a very large number for too many files."""
        total = entries = 0
        folders = [self.path]
        while folders:
            with contextlib.suppress(OSError), os.scandir(folders.pop()) as found:
                for entry in found:
                    entries += 1
                    if entries > MOST_ENTRIES:
                        return 1 << 62
                    state = entry.stat(follow_symlinks=False)
                    total += state.st_blocks * 512
                    if stat.S_ISDIR(state.st_mode):
                        folders.append(entry.path)
        return total


def _state(path: str) -> tuple[int, ...]:
    """Everything that a program can change about an empty directory."""
    found = os.stat(path, follow_symlinks=False)
    return (found.st_mode, found.st_ino, found.st_dev, found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)


def remove(folder: str) -> None:
    """Remove a folder of any depth without following links. It changes the working directory, to / in the end.

    It walks down and up again by single names, so that no path is long and nothing recurses.
    """
    os.chmod(folder, 0o700)
    os.chdir(folder)
    way: list[str] = []  # names of the folders from `folder` down to the current one
    while True:
        deeper = None
        with os.scandir(".") as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    deeper = entry.name
                    break
                os.unlink(entry.name)
        if deeper is not None:
            os.chmod(deeper, 0o700)
            os.chdir(deeper)
            way.append(deeper)
        elif way:
            os.chdir("..")
            os.rmdir(way.pop())
        else:
            break
    os.chdir("/")
    os.rmdir(folder)
