"""The process that zygotes are forked from: an interpreter with the modules that programs use most, and no others.

Started once for a pool with an empty environment; torch and the trainer's modules are never in it. It ends, with all
its zygotes, when the trainer's side closes its socket.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

from whet.sandbox import boxes, kernel, landlock, namespaces, numbers
from whet.sandbox import filter as seccomp
from whet.sandbox.confine import Layers, Rules
from whet.sandbox.paths import readable
from whet.sandbox.zygote import Zygote

# Not threading, random, asyncio and what imports them: their hooks after a fork cost more than the fork. Every library
# and every page that is loaded here makes each fork slower; programs import the rest themselves.
_PRELOADED = """
bisect collections.abc copy functools heapq itertools linecache math operator re string traceback types typing
whet.sandbox.calls whet.sandbox.objects whet.sandbox.examiner
"""
# Users without a name, one for each zygote of a pool that root starts, and how many pools share the range. The second
# range is for containers that map few.
_RANGES = ((0x6E000000, 1 << 20), (61_000, 1))
_PER_POOL = 512
_ours: list[object] = []  # modules of whet, kept alive


def main(control: int, base: str, package: str, packages: list[str]) -> None:
    """Fork a zygote for every socket that arrives, until the socket of the pool closes.

    `base` is the pool's folder, `package` the folder that whet was imported from, `packages` those that programs see.
    """
    for name in _PRELOADED.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # zygotes are not waited for
    # A signal without a handler does not reach process 1 of a PID namespace from inside it; one with a handler does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.path.remove(package)
    sys.path += packages
    sys.path.insert(0, "")  # a program's own directory
    sys.argv = ["program.py"]
    sys.executable = os.path.realpath(sys.executable)
    for name in [name for name in sys.modules if name.partition(".")[0] == "whet"]:
        _ours.append(sys.modules.pop(name))  # a program sees the modules of a new interpreter
    gc.collect()
    gc.freeze()
    gc.disable()
    own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=control)
    while True:
        message, descriptors, _, _ = socket.recv_fds(own, 4096, 1)
        if not message:
            break
        if os.fork() == 0:
            own.close()
            _be_zygote(json.loads(message), descriptors[0], base, packages)
        os.close(descriptors[0])
    with contextlib.suppress(OSError):
        boxes.remove(base)
    os._exit(0)


def _be_zygote(order: dict[str, Any], descriptor: int, base: str, packages: list[str]) -> None:
    """Become a zygote with the layers asked for; never returns."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        try:
            make = _in_namespaces if order["layers"] == "namespaces" else _with_landlock
            zygote = make(channel, order["slot"], base, readable(packages))
        except BaseException as error:
            channel.send(json.dumps({"problem": f"{type(error).__name__}: {error}"}).encode())
            os._exit(1)
        zygote.channel.send(json.dumps({"layers": zygote.layers._asdict()}).encode())
        try:
            zygote.serve()
        except Exception as error:  # a bug, or a kernel that ran out of something: the pool replaces this zygote
            zygote.channel.send(json.dumps({"crash": f"{type(error).__name__}: {error}"[:4000]}).encode())
    finally:
        os._exit(0)


def _in_namespaces(channel: socket.socket, slot: int, base: str, paths: list[str]) -> Zygote:
    _need_machine()
    uid = _free_user(slot) if os.getuid() == 0 else None
    namespaces.enter(base, paths, uid)
    if os.fork() != 0:
        os._exit(0)
    proc = namespaces.open_proc()
    namespaces.mount_box(1)  # so that a kernel that refuses it is found out now
    namespaces.unmount_box()
    layers = Layers("namespaces", 0, True, False, _can_notify(), proc is not None)
    return Zygote(channel, layers, proc, None, boxes.Tmpfs())


def _with_landlock(channel: socket.socket, slot: int, base: str, paths: list[str]) -> Zygote:
    _need_machine()
    version = landlock.abi()
    if version < 1:
        raise OSError("the kernel has no Landlock (Linux 5.13 or newer, with landlock among its security modules)")
    rules = Rules(version, paths)
    folder = f"{base}/{slot}"
    os.mkdir(folder, 0o700)
    root = os.getuid() == 0
    reads = False
    if root:
        uid = _free_user(slot)
        os.chmod(base, 0o711)
        os.chown(folder, uid, uid)
        kernel.prctl(kernel.SET_KEEPCAPS, 1)
        namespaces.become(uid)
        reads = not all(os.access(path, os.R_OK) for path in paths)
        kernel.Capabilities(kernel.CAP_DAC_READ_SEARCH if reads else None).set()
    kernel.prctl(kernel.SET_DUMPABLE, 0 if root else 1)
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if os.path.exists("/proc/self/task") else None
    layers = Layers("landlock", version, root, reads, _can_notify(), proc is not None)
    if not root and not (layers.notifies and proc is not None):
        raise OSError("processes cannot be counted: that needs seccomp notifications (Linux 5.5) and /proc")
    return Zygote(channel, layers, proc, rules, boxes.Folder(folder))


def _need_machine() -> None:
    if not numbers.NUMBERS:
        raise OSError(f"the sandbox knows the system calls of x86_64 and aarch64, not of {numbers.MACHINE}")


def _free_user(slot: int) -> int:
    """Return a user id that no process of this machine has, so that its processes can be counted and killed."""
    taken = _users()
    for first, pools in _RANGES:
        start = first + (os.getppid() % pools) * _PER_POOL
        uid = start + slot % _PER_POOL
        while uid in taken:
            uid += 1
        if _maps(uid):
            return uid
    raise OSError("no user id is free for programs: this container maps too few")


def _users() -> set[int]:
    found = set()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                found.add(os.stat(f"/proc/{name}").st_uid)
    return found


def _maps(uid: int) -> bool:
    """True if this user id exists in our user namespace."""
    with open("/proc/self/uid_map") as file:
        rows = [list(map(int, line.split())) for line in file]
    return any(first <= uid < first + length for first, _, length in rows)


def _can_notify() -> bool:
    """Install the filter in a child to see whether the kernel notifies of refused calls."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.prctl(kernel.NO_NEW_PRIVS, 1)
            seccomp.Filter(seccomp.Policy()).install()
            os.write(write, b"1")
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    found = os.read(read, 1) == b"1"
    os.close(read)
    return found
