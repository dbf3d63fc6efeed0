"""Landlock: deny files, TCP, signals and abstract sockets outside what a ruleset lists.

Which accesses a kernel can deny depends on its ABI: 1 files, 2 moving between directories, 3 truncation, 4 TCP,
5 device ioctls, 6 signals and abstract sockets. Bits that the kernel lacks are left out, and probe.py reports them.
"""

from __future__ import annotations

import struct

from whet.sandbox.kernel import call, checked, fast
from whet.sandbox.numbers import NUMBERS

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_ALL_OF_ABI_1 = (1 << 13) - 1
_TCP = 3  # bind and connect
_SCOPED = 3  # abstract sockets and signals
_PATH_BENEATH = 1
_VERSION_FLAG = 1
SIGNALS_ABI = 6
_RESTRICT = NUMBERS.get("landlock_restrict_self", -1)

READ = EXECUTE | READ_FILE | READ_DIR
READ_DEVICE = READ_FILE
WRITE_DEVICE = READ_FILE | WRITE_FILE | _TRUNCATE | _IOCTL
FILE_ONLY = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL


def abi() -> int:
    """Return the kernel's Landlock ABI; 0 if there is none."""
    try:
        return call("landlock_create_ruleset", None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def file_rights(version: int) -> int:
    """Return every file access that an ABI can deny."""
    rights = _ALL_OF_ABI_1
    for since, bit in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL)):
        rights |= bit if version >= since else 0
    return rights


class Ruleset:
    """Accesses to deny, and paths they are allowed beneath."""

    def __init__(self, version: int) -> None:
        self._rights = file_rights(version)
        attributes = struct.pack("<QQQ", self._rights, _TCP if version >= 4 else 0, _SCOPED if version >= 6 else 0)
        size = 24 if version >= 6 else 16 if version >= 4 else 8
        self.descriptor = call("landlock_create_ruleset", attributes[:size], size, 0)

    def allow(self, descriptor: int, rights: int) -> None:
        """Allow accesses beneath an open directory, or of an open file."""
        rule = struct.pack("<Qi", rights & self._rights, descriptor)
        call("landlock_add_rule", self.descriptor, _PATH_BENEATH, rule, 0)

    def allow_all(self, descriptor: int) -> None:
        """Allow every access beneath an open directory."""
        self.allow(descriptor, self._rights)


def restrict(descriptor: int) -> None:
    """Deny this process and its children everything that a ruleset does not allow. Needs no_new_privs."""
    checked("landlock_restrict_self", fast(_RESTRICT, descriptor, 0, 0, 0, 0, 0))
