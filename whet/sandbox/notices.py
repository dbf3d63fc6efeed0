"""The zygote's end of seccomp notifications: names of refused calls, and the answer to each."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable

from whet.sandbox.filter import ATTRIBUTES, FORKS, NAMESPACES
from whet.sandbox.numbers import NAMES

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_REQUEST = struct.Struct("<QIIiIQ6Q")  # id, pid, flags, number, architecture, instruction, arguments
_ANSWER = struct.Struct("<QqiI")
_CONTINUE = 1
_EPERM, _EAGAIN = 1, 11
_MOST_NAMES = 32
_FAMILIES = {
    1: "AF_UNIX",
    2: "AF_INET",
    10: "AF_INET6",
    16: "AF_NETLINK",
    17: "AF_PACKET",
    38: "AF_ALG",
    40: "AF_VSOCK",
}


class Notices:
    """Answers the refused calls of one program; `refused` holds their names."""

    def __init__(self, listener: int, may_fork: Callable[[], bool]) -> None:
        self.listener = listener
        self._may_fork = may_fork
        self.refused: dict[str, None] = {}  # a set that keeps its order

    def answer(self) -> None:
        """Answer the call that waits; one whose process was killed meanwhile needs no answer."""
        buffer = bytearray(_REQUEST.size)
        with contextlib.suppress(FileNotFoundError, InterruptedError):
            fcntl.ioctl(self.listener, _RECEIVE, buffer)
            identity, _, _, number, _, _, *arguments = _REQUEST.unpack(buffer)
            error, flags = self._judge(NAMES.get(number, f"system call {number}"), arguments)
            fcntl.ioctl(self.listener, _SEND, _ANSWER.pack(identity, 0, error, flags))

    def close(self) -> None:
        """Stop answering; calls that are refused from now on fail."""
        os.close(self.listener)

    def _judge(self, name: str, arguments: list[int]) -> tuple[int, int]:
        """Return the errno (negative) and the flags of the answer.

        Letting a fork go on is safe: its flags are in a register, where no other thread can change them.
        """
        makes_namespaces = name == "clone" and arguments[0] & NAMESPACES != 0
        if name in FORKS and not makes_namespaces and self._may_fork():
            return 0, _CONTINUE
        if name in ("socket", "socketpair"):
            family = arguments[0] & 0xFFFFFFFF
            name = f"{name}({_FAMILIES.get(family, family)})"
        if len(self.refused) < _MOST_NAMES:
            self.refused[name] = None
        if name in ATTRIBUTES:
            return 0, 0  # success, and nothing has changed
        return (-_EAGAIN if name in FORKS else -_EPERM), 0
