"""The filter on both machine types, by an interpreter of BPF that is not the kernel's."""

from __future__ import annotations

import struct

import pytest

from whet.sandbox.filter import ALLOWED, Policy, compiled
from whet.sandbox.numbers import ARCHITECTURES, numbers

ALLOW, KILL, NOTIFY, ERRNO = 0x7FFF0000, 0x80000000, 0x7FC00000, 0x00050000
MACHINES = sorted(ARCHITECTURES)
REFUSED = """
socket connect bind ptrace process_vm_readv unshare setns mount umount2 pivot_root chroot bpf io_uring_setup
userfaultfd perf_event_open keyctl add_key kexec_load init_module memfd_create shmget msgget semget mq_open setuid
open_by_handle_at pidfd_getfd pidfd_send_signal fsopen open_tree move_mount reboot swapon settimeofday clock_settime
sethostname quotactl acct syslog mbind mlock setxattr fanotify_init name_to_handle_at
"""


def decide(program: bytes, machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """Run a BPF program on one system call."""
    given = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<iIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *given)
    at = value = 0
    while True:
        code, yes, no, operand = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
        elif code == 0x06:
            return operand
        elif code == 0x05:
            at += operand
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand != 0}[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_listed_is_allowed_and_nothing_else(machine: str) -> None:
    known, program = numbers(machine), compiled(Policy(), machine)
    assert len(program) // 8 < 4096
    for name in ALLOWED:
        if name in known:
            assert decide(program, machine, known[name]) == ALLOW, name
    for name in REFUSED.split():
        if name in known:
            assert decide(program, machine, known[name]) == NOTIFY, name
    for number in (max(known.values()) + 1, 1000, 0x3FFFFFFF):
        assert decide(program, machine, number) == NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
def test_other_entries_of_the_kernel_are_closed(machine: str) -> None:
    program = compiled(Policy(), machine)
    assert decide(program, machine, 0, architecture=0x40000003) == KILL  # 32-bit x86
    if machine == "x86_64":
        assert decide(program, machine, 0x40000000 + 39) == ERRNO | 38


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_are_judged_by_their_arguments(machine: str) -> None:
    known, program = numbers(machine), compiled(Policy(), machine)
    call = lambda name, *arguments: decide(program, machine, known[name], *arguments)  # noqa: E731
    assert call("clone", 0x003D0F00) == ALLOW  # a thread
    assert call("clone", 17) == ALLOW
    for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000):
        assert call("clone", flag | 17) == NOTIFY
    assert call("clone3", 1) == ERRNO | 38
    assert call("socketpair", 1) == ALLOW
    assert call("socketpair", 2) == NOTIFY
    assert call("prlimit64", 0) == ALLOW
    assert call("prlimit64", 1) == NOTIFY
    assert call("setpriority", 0, 0) == ALLOW
    for which, who in ((0, 5), (1, 0), (2, 0)):
        assert call("setpriority", which, who) == NOTIFY
    assert call("fcntl", 3, 1) == ALLOW
    assert call("fcntl", 3, 8) == NOTIFY
    assert call("ioctl", 3, 0x5401) == ALLOW
    assert call("ioctl", 3, 0x5412) == NOTIFY
    assert call("ioctl", 3, 0xC0502100) == NOTIFY
    assert call("kill", 1, 9) == ALLOW


def test_a_shared_user_has_stricter_rules() -> None:
    known = numbers("x86_64")
    policy = Policy(notify=True, count_forks=True, free_attributes=False, free_signals=False)
    program = compiled(policy, "x86_64")
    assert decide(program, "x86_64", known["fork"]) == NOTIFY
    assert decide(program, "x86_64", known["kill"], 1, 9) == NOTIFY
    assert decide(program, "x86_64", known["kill"], 0, 9) == ALLOW
    assert decide(program, "x86_64", known["chmod"]) == NOTIFY
    quiet = compiled(policy._replace(notify=False), "x86_64")
    assert decide(quiet, "x86_64", known["chmod"]) == ERRNO  # success without effect
    assert decide(quiet, "x86_64", known["mount"]) == ERRNO | 1


def test_numbers_are_the_kernels() -> None:
    x86, arm = numbers("x86_64"), numbers("aarch64")
    assert (x86["read"], arm["read"]) == (0, 63)
    assert (x86["execve"], arm["execve"]) == (59, 221)
    assert (x86["seccomp"], arm["seccomp"]) == (317, 277)
    assert (x86["landlock_create_ruleset"], arm["landlock_create_ruleset"]) == (444, 444)
    assert "open" not in arm
    assert numbers("riscv64") == {}
    for table in (x86, arm):
        assert len(set(table.values())) == len(table)
