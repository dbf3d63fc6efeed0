"""The seccomp filter: a list of allowed system calls as a classic BPF program.

A call that is not listed is refused. Where the kernel can notify another process of a refused call
(SECCOMP_RET_USER_NOTIF), the zygote is notified, notes the call's name and answers with an error; else the filter
answers with the error itself. Some calls are judged by their arguments: pointers cannot be followed, registers can.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import NamedTuple

from whet.sandbox.kernel import (
    NEW_CGROUP,
    NEW_IPC,
    NEW_NET,
    NEW_NS,
    NEW_PID,
    NEW_TIME,
    NEW_USER,
    NEW_UTS,
    checked,
    fast,
)
from whet.sandbox.numbers import ARCHITECTURES, MACHINE, NUMBERS, X32_BIT, numbers

_ALLOWED = """
read write open close stat fstat lstat newfstatat statx poll ppoll lseek mmap mprotect munmap mremap msync mincore
madvise brk rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack
restart_syscall pause pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 access faccessat faccessat2 pipe
pipe2 select pselect6 sched_yield dup dup2 dup3 nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time
times getitimer setitimer alarm timer_create timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create
timerfd_settime timerfd_gettime eventfd eventfd2 signalfd signalfd4 epoll_create epoll_create1 epoll_ctl epoll_wait
epoll_pwait epoll_pwait2 getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgrp
getpgid getsid setpgid setsid fork vfork execve execveat exit exit_group wait4 waitid uname umask getcwd chdir fchdir
sysinfo getrusage getrandom getcpu rename renameat renameat2 mkdir mkdirat rmdir creat link linkat unlink unlinkat
symlink symlinkat readlink readlinkat openat openat2 mknod mknodat truncate ftruncate fallocate fadvise64 readahead
getdents getdents64 fsync fdatasync flock statfs fstatfs sendfile splice tee vmsplice copy_file_range close_range
arch_prctl set_tid_address set_robust_list get_robust_list futex futex_waitv futex_wake futex_wait futex_requeue
membarrier rseq sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min
sched_rr_get_interval getpriority sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown getsockname getpeername
getsockopt setsockopt capget getrlimit setrlimit pkey_alloc pkey_free pkey_mprotect map_shadow_stack mseal
"""
ALLOWED = _ALLOWED.split()
# Attributes of files. Landlock does not judge them, so a program could change those of its user's files anywhere.
_ATTRIBUTES = "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat"
ATTRIBUTES = _ATTRIBUTES.split()
EXTENDED = ("getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr")
FORKS = ("fork", "vfork", "clone")
OWN_PID = 0x5EC0115E  # stands for the process id in a compiled filter, until it is installed

_ALLOW, _KILL, _ERRNO, _NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_EPERM, _ENOSYS = 1, 38
_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
NAMESPACES = NEW_NS | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET | NEW_CGROUP | NEW_TIME
_AF_UNIX = 1
_OWNER_COMMANDS = (8, 10, 15)  # fcntl: F_SETOWN, F_SETSIG, F_SETOWN_EX send signals to a process of one's choice
# ioctl: the same for sockets (FIOSETOWN, SIOCSPGRP), typing on a terminal (TIOCSTI, TIOCLINUX), answering notifications
_IOCTLS = (0x8901, 0x8902, 0x5412, 0x541C, 0xC0502100, 0xC0182101, 0x40082102, 0x40182103, 0x40082104)
_PR_SET_MM, _PR_SET_PTRACER = 35, 0x59616D61
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8


class Policy(NamedTuple):
    """Choices of a filter that depend on the other layers."""

    notify: bool = True  # report refused calls to a listener
    count_forks: bool = False  # ask the listener about every new process: nothing else can count them
    free_attributes: bool = True  # every file that could be changed is the program's own
    free_signals: bool = True  # another layer keeps signals inside


def _ins(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _argument(index: int) -> bytes:
    return _ins(_LOAD, 16 + 8 * index)  # the low half; what is judged here are ints


def _unless(index: int, values: tuple[int, ...], found: int, otherwise: int) -> bytes:
    """Return `found` if an argument has one of the values, else `otherwise`."""
    tests = [_ins(_EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)]
    return _argument(index) + b"".join(tests) + _ins(_RETURN, otherwise) + _ins(_RETURN, found)


def _judged(policy: Policy, refuse: int) -> dict[str, bytes]:
    """Return the part of the program for each call that is judged by its arguments."""
    fork = _NOTIFY if policy.count_forks else _ALLOW
    only_self = _unless(0, (0, OWN_PID), _ALLOW, refuse)
    rules = {
        "fork": _ins(_RETURN, fork),
        "vfork": _ins(_RETURN, fork),
        "clone": _argument(0) + _ins(_ANY_BIT, NAMESPACES, 1, 0) + _ins(_RETURN, fork) + _ins(_RETURN, refuse),
        "clone3": _ins(_RETURN, _ERRNO | _ENOSYS),  # its flags are in memory; libc falls back to clone
        "socketpair": _unless(0, (_AF_UNIX,), _ALLOW, refuse),
        "prlimit64": only_self,
        "sched_setaffinity": only_self,
        "fcntl": _unless(1, _OWNER_COMMANDS, refuse, _ALLOW),
        "ioctl": _unless(1, _IOCTLS, refuse, _ALLOW),
        "prctl": _unless(0, (_PR_SET_MM, _PR_SET_PTRACER), refuse, _ALLOW),
        "personality": _unless(0, (0, 0xFFFFFFFF), _ALLOW, refuse),
        # PRIO_PROCESS of this process: PRIO_USER with 0 would be every process of the user
        "setpriority": _argument(0)
        + _ins(_EQUAL, 0, 0, 2)
        + _argument(1)
        + _ins(_EQUAL, 0, 1, 0)
        + _ins(_RETURN, refuse)
        + _ins(_RETURN, _ALLOW),
    }
    for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        rules[name] = _ins(_RETURN, _ALLOW) if policy.free_signals else only_self
    for name in ATTRIBUTES:
        # Errno 0 is success: programs that copy files expect to set their mode, and nothing changes.
        rules[name] = _ins(_RETURN, _ALLOW if policy.free_attributes else _NOTIFY if policy.notify else _ERRNO)
    for name in EXTENDED:
        rules[name] = _ins(_RETURN, _ALLOW)
    return rules


def compiled(policy: Policy, machine: str = MACHINE) -> bytes:
    """Return the BPF program of a policy: a binary search over call numbers.

    When a filter is installed, the kernel walks it once for every number, so that a list would cost more than a fork.
    """
    refuse = _NOTIFY if policy.notify else _ERRNO | _EPERM
    known = numbers(machine)
    blocks = {known[name]: _ins(_RETURN, _ALLOW) for name in ALLOWED if name in known}
    blocks |= {known[name]: block for name, block in _judged(policy, refuse).items() if name in known}
    # The architecture first: a 32-bit entry would give every number another meaning.
    program = [_ins(_LOAD, 4), _ins(_EQUAL, ARCHITECTURES[machine], 1, 0), _ins(_RETURN, _KILL), _ins(_LOAD, 0)]
    if machine == "x86_64":
        program += [_ins(_AT_LEAST, X32_BIT, 0, 1), _ins(_RETURN, _ERRNO | _ENOSYS)]
    return b"".join(program) + _search(_ranges(blocks, _ins(_RETURN, refuse)))


def _ranges(blocks: dict[int, bytes], otherwise: bytes) -> list[tuple[int, bytes]]:
    """Return where each run of numbers with the same block begins, from 0 on."""
    found: list[tuple[int, bytes]] = []
    for number in range(max(blocks) + 2):
        block = blocks.get(number, otherwise)
        if not found or found[-1][1] != block:
            found.append((number, block))
    return found


def _search(ranges: list[tuple[int, bytes]]) -> bytes:
    """Return instructions that jump to the block of the range that the loaded number is in."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    distance = len(below) // 8
    if distance < 256:
        return _ins(_AT_LEAST, ranges[middle][0], distance, 0) + below + above
    return _ins(_AT_LEAST, ranges[middle][0], 0, 1) + _ins(_JUMP, distance) + below + above


class Filter:
    """A compiled filter in memory, ready to be installed by any forked process."""

    def __init__(self, policy: Policy) -> None:
        program = compiled(policy)
        mark = struct.pack("<I", OWN_PID)
        self._notify = policy.notify
        self._program = ctypes.create_string_buffer(program, len(program))
        self._header = ctypes.create_string_buffer(
            struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(self._program))
        )
        self._places = [at for at in range(4, len(program), 8) if program[at : at + 4] == mark]
        flags = _NEW_LISTENER if policy.notify else 0
        self._call = NUMBERS["seccomp"], _SET_MODE_FILTER, flags, ctypes.addressof(self._header)

    def install(self) -> int | None:
        """Apply it to this process for good; return the listener if it notifies. Needs no_new_privs."""
        pid = struct.pack("<I", os.getpid())
        for at in self._places:
            ctypes.memmove(ctypes.addressof(self._program) + at, pid, len(pid))
        found = checked("seccomp", fast(*self._call, 0, 0, 0))
        return found if self._notify else None
