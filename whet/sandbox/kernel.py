"""Kernel calls that Python's standard library lacks, through ctypes.

ctypes is loaded and every buffer is built before a process forks. Each function raises OSError with the kernel's errno.
"""

from __future__ import annotations

import ctypes
import os
import struct

from whet.sandbox.numbers import NUMBERS

NEW_NS, NEW_UTS, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USER, NEW_PID, NEW_NET, NEW_CGROUP = 0x10000000, 0x20000000, 0x40000000, 0x02000000
NEW_TIME = 0x00000080
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_NOATIME = 1, 2, 4, 8, 32, 1024
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PDEATHSIG, SET_DUMPABLE, SET_KEEPCAPS, NO_NEW_PRIVS, CHILD_SUBREAPER = 1, 4, 8, 38, 36
CAP_DAC_READ_SEARCH = 2

_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
# The same with numbers and addresses alone; a forked process touches less memory by it.
fast = ctypes.CDLL(None, use_errno=True)["syscall"]
fast.restype = ctypes.c_long
fast.argtypes = [ctypes.c_long] * 7
_PRCTL = NUMBERS.get("prctl", -1)
_CLOSE_RANGE = NUMBERS.get("close_range", -1)


def call(name: str, *arguments: int | bytes | ctypes.Array | None) -> int:
    """Make a system call by name; OSError with its errno if it fails, ENOSYS if this machine has none."""
    number = NUMBERS.get(name)
    if number is None:
        raise OSError(38, f"{name}: this machine has no such call")
    passed = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return checked(name, _syscall(ctypes.c_long(number), *passed))


def checked(name: str, result: int) -> int:
    """Return the result of a call; OSError if it failed."""
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def prctl(option: int, value: int = 0) -> None:
    """Set an attribute of this process."""
    checked("prctl", fast(_PRCTL, option, value, 0, 0, 0, 0))


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    call("unshare", flags)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or bind one path to another."""
    call("mount", source.encode(), target.encode(), kind.encode(), flags, options.encode())


def unmount(target: str) -> None:
    """Detach a mount at once; open files keep it alive."""
    call("umount2", target.encode(), MNT_DETACH)


def pivot_root(new: str) -> None:
    """Make a mount the root directory and detach the old root."""
    os.chdir(new)
    call("pivot_root", b".", b".")  # the old root is mounted over the new one
    unmount(".")
    os.chdir("/")


def make_readonly(target: str, devices: bool = False) -> None:
    """Set a mount and those below it read-only, without set-id programs and (unless asked for) without devices."""
    flags = _ATTR_RDONLY | _ATTR_NOSUID | (0 if devices else _ATTR_NODEV)
    request = struct.pack("<QQQQ", flags, 0, 0, 0)
    call("mount_setattr", _AT_FDCWD, target.encode(), _AT_RECURSIVE, request, len(request))


class Capabilities:
    """A set of capabilities, none or one, that a process can reduce its own to."""

    def __init__(self, keep: int | None = None) -> None:
        kept = 0 if keep is None else 1 << keep
        self._header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0))
        self._sets = ctypes.create_string_buffer(struct.pack("<IIIIII", kept, kept, 0, 0, 0, 0))
        self._call = NUMBERS["capset"], ctypes.addressof(self._header), ctypes.addressof(self._sets)

    def set(self) -> None:
        """Give up every other capability."""
        checked("capset", fast(*self._call, 0, 0, 0, 0))


def close_from(descriptor: int) -> None:
    """Close this descriptor and all above it."""
    checked("close_range", fast(_CLOSE_RANGE, descriptor, 0x7FFFFFFF, 0, 0, 0, 0))
