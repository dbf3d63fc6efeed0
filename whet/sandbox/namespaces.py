"""Namespaces of a zygote: user, mount, PID, network, IPC and UTS, entered once.

The zygote is process 1 of its PID namespace, so that one signal to -1 ends whatever a program has started, and its own
death ends the rest. Its root directory is a read-only tmpfs with the paths of paths.py bound into it. Programs run in
these namespaces one at a time, without capabilities. What could outlive a program is replaced after each (boxes.py)
or refused by the filter: System V IPC, message queues, sockets, keys.
"""

from __future__ import annotations

import os

from whet.sandbox import kernel
from whet.sandbox.kernel import MS_BIND, MS_NOATIME, MS_NODEV, MS_NOSUID, MS_PRIVATE, MS_REC
from whet.sandbox.paths import BOX, READ_DEVICES, WRITE_DEVICES, links

INNER_ID = 1000  # user and group inside; not 0, so that an executed program gains no capabilities
_ALL = kernel.NEW_USER | kernel.NEW_NS | kernel.NEW_PID | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS
HOSTNAME = b"sandbox"


def enter(base: str, paths: list[str], uid: int | None) -> None:
    """Enter the namespaces; processes forked from now on are in the PID namespace.

    `base` is an existing folder to mount on. With a uid, the caller is root: it builds the new root first, because that
    user may not be allowed to reach the interpreter's folder, and then becomes that user.
    """
    if uid is not None:
        kernel.unshare(kernel.NEW_NS)
        _build_root(base, paths)
        become(uid)
    own = os.getuid(), os.getgid()
    kernel.unshare(_ALL)
    kernel.prctl(kernel.SET_DUMPABLE, 1)  # else the files below belong to root
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{INNER_ID} {own[0]} 1"),
        ("gid_map", f"{INNER_ID} {own[1]} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    if uid is None:
        _build_root(base, paths)


def become(uid: int) -> None:
    """Give up root for a user and group without a name."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _build_root(base: str, paths: list[str]) -> None:
    kernel.mount("none", "/", flags=MS_REC | MS_PRIVATE)
    kernel.mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=0755")
    for path in paths:
        _bind(base, path)
        kernel.make_readonly(base + path)
    for path in (*READ_DEVICES, *WRITE_DEVICES):
        _bind(base, path)
        kernel.make_readonly(base + path, devices=True)
    for path, target in links().items():
        os.symlink(target, base + path)
    for folder in ("/tmp", "/proc", BOX):
        os.makedirs(base + folder, exist_ok=True)
    _bind(base, "/proc")  # the kernel allows a new one only where an old one is visible; `open_proc` hides it
    kernel.pivot_root(base)


def _bind(base: str, path: str) -> None:
    target = base + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_RDONLY, 0o644))
    kernel.mount(path, target, flags=MS_BIND | MS_REC)


def open_proc() -> int | None:
    """Return a descriptor of this namespace's /proc, for the zygote alone, and cover the path; None if not allowed.

    Call it in process 1. It also sets the host's name and makes the root read-only.
    """
    found = None
    try:
        kernel.mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
        found = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        kernel.unmount("/proc")
    except OSError:
        pass  # a container that masks parts of /proc: memory is then bounded for each process only
    kernel.mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | kernel.MS_RDONLY, "size=4k,mode=0555")
    kernel.mount("none", "/", flags=MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | MS_NOSUID | MS_NODEV)
    kernel.call("sethostname", HOSTNAME, len(HOSTNAME))
    return found


def mount_box(disk_mb: int) -> None:
    """Mount an empty private directory of a limited size."""
    options = f"size={disk_mb}m,nr_inodes=16384,mode=0700,uid={INNER_ID},gid={INNER_ID}"
    kernel.mount("tmpfs", BOX, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOATIME, options)


def unmount_box() -> None:
    """Throw the private directory away."""
    kernel.unmount(BOX)
