"""The trainer's handle of one zygote, and of the nursery that forks them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
from dataclasses import astuple
from typing import Any

from whet.sandbox.limits import Limits
from whet.sandbox.running import Running
from whet.system.folders import fast_folder

START_SECONDS = 60.0
# Everything that programs see of an environment. They start in their private directory.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": ".",
    "TMPDIR": ".",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_SO_PASSCRED = 16
_FLAGS = ("-I", "-S", "-B", "-X", "utf8", "-c")
_BOOT = """
import sys
sys.path.append(sys.argv[3])
from whet.sandbox.nursery import main
main(int(sys.argv[1]), *sys.argv[2:4], sys.argv[4:])
"""


class NotConfinedError(Exception):
    """The layers asked for cannot be had on this machine; the message says why."""


class Nursery:
    """The process that zygotes are forked from. It ends with this object, or with this process."""

    def __init__(self, folder: str | None = None) -> None:
        self._base = tempfile.mkdtemp(prefix="whet-sandbox-", dir=folder or fast_folder())
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._slots = 0
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        packages = [os.path.realpath(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *_FLAGS, _BOOT, str(theirs.fileno()), self._base, package, *dict.fromkeys(packages)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(packages)},
                cwd="/",
                start_new_session=True,
            )

    def fork(self, layers: str) -> Worker:
        """Return a new zygote with these layers; NotConfinedError if it cannot have them."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 1)
        with self._lock:
            slot, self._slots = self._slots, self._slots + 1
            with theirs:
                try:
                    order = json.dumps({"layers": layers, "slot": slot}).encode()
                    socket.send_fds(self._control, [order], [theirs.fileno()])
                except OSError:
                    raise NotConfinedError("the process that starts programs has ended") from None
        return Worker(ours)

    def close(self) -> None:
        """End it; zygotes end when their own sockets close."""
        self._control.close()
        try:
            self._process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._base, ignore_errors=True)


class Worker:
    """One zygote: runs one program at a time. `layers` says how it confines them."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        channel.settimeout(START_SECONDS)
        try:
            message, extra, _, _ = channel.recvmsg(65536, 1024)
        except TimeoutError:
            message, extra = b"", []
        if not message:
            channel.close()
            raise NotConfinedError("the process that runs programs ended before it was confined")
        hello = json.loads(message)
        if "problem" in hello:
            channel.close()
            raise NotConfinedError(hello["problem"])
        channel.settimeout(None)
        self.layers: dict[str, Any] = hello["layers"]
        (self.pid,) = struct.unpack_from("i", next(data for _, kind, data in extra if kind == socket.SCM_CREDENTIALS))
        channel.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 0)

    def start(
        self,
        mode: str,
        request: dict[str, Any] | bytes,
        limits: Limits,
        stdin: bytes = b"",
        channel: int | None = None,
        entry: int | None = None,
        wants_reply: bool = False,
        **options: Any,
    ) -> Running:
        """Begin an execution. `channel` is a socket's descriptor for it; `wants_reply` gives it a pipe to us instead.

        `entry` is a descriptor that stands in for stdin.
        """
        order = {"kind": "run", "mode": mode, "limits": astuple(limits), **options}
        with contextlib.ExitStack() as theirs:
            stdout = _pipe(theirs)
            stderr = _pipe(theirs)
            reply = _pipe(theirs) if wants_reply else None
            body = _sealed(theirs, request if isinstance(request, bytes) else json.dumps(request).encode())
            if entry is None:
                entry = _sealed(theirs, stdin) if stdin else _null(theirs)
            last = reply[1] if reply else channel if channel is not None else _null(theirs)
            with contextlib.suppress(OSError):  # its end is noticed later, by an empty message
                socket.send_fds(self._channel, [json.dumps(order).encode()], [entry, stdout[1], stderr[1], body, last])
        return Running(self._channel, limits, stdout[0], stderr[0], reply[0] if reply else None)

    def close(self) -> None:
        """Let it end by itself, with everything it runs."""
        self._channel.close()

    def kill(self) -> None:
        """End a zygote that does not answer."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        self.close()


def _pipe(theirs: contextlib.ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    theirs.callback(os.close, write)
    return read, write


def _null(theirs: contextlib.ExitStack) -> int:
    descriptor = os.open(os.devnull, os.O_RDWR)
    theirs.callback(os.close, descriptor)
    return descriptor


def _sealed(theirs: contextlib.ExitStack, content: bytes) -> int:
    """Return a descriptor of an anonymous file with this content that nobody can change."""
    descriptor = os.memfd_create("whet", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    theirs.callback(os.close, descriptor)
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return descriptor
