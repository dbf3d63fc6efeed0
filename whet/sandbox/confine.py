"""Confine this process for good, before any text of the model is compiled.

Order matters: limits first, then the directory, privileges, Landlock, and the filter last, because it refuses the
calls that the other steps need.
"""

from __future__ import annotations

import math
import os
import resource
from dataclasses import dataclass

from whet.sandbox import filter as seccomp
from whet.sandbox import kernel
from whet.sandbox.landlock import FILE_ONLY, READ, READ_DEVICE, WRITE_DEVICE, Ruleset
from whet.sandbox.limits import Limits
from whet.sandbox.paths import READ_DEVICES, WRITE_DEVICES

_MB = 1 << 20
_FILES = 256  # open descriptors
_STACK_MB = 64


@dataclass(frozen=True)
class Layers:
    """The layers that a zygote applies, as found out by trying."""

    name: str  # "namespaces" or "landlock"
    landlock_abi: int
    own_user: bool  # nothing else runs as this user (in this namespace): the kernel counts its processes
    keeps_reading: bool  # the interpreter lies in a folder that only root may pass: keep the capability to read there
    notifies: bool  # refused calls can be reported
    sums_memory: bool  # the memory of all processes together can be measured

    @property
    def policy(self) -> seccomp.Policy:
        """Return the choices of the filter that follow."""
        alone = self.own_user or self.name == "namespaces"
        return seccomp.Policy(
            notify=self.notifies,
            count_forks=not alone and self.notifies,
            free_attributes=alone,
            free_signals=self.name == "namespaces" or self.landlock_abi >= 6,
        )


class Rules:
    """Open descriptors of the paths that programs may read, for rulesets of Landlock."""

    def __init__(self, paths: list[str]) -> None:
        rights = {path: READ if os.path.isdir(path) else READ & FILE_ONLY for path in paths}
        rights |= {path: READ_DEVICE for path in READ_DEVICES} | {path: WRITE_DEVICE for path in WRITE_DEVICES}
        flags = os.O_PATH | os.O_CLOEXEC
        self._opened = [(os.open(path, flags), allowed) for path, allowed in rights.items() if os.path.exists(path)]

    def ruleset(self, version: int, box: str) -> Ruleset:
        """Return a ruleset for these paths and one private directory."""
        ruleset = Ruleset(version)
        for descriptor, rights in self._opened:
            ruleset.allow(descriptor, rights)
        own = os.open(box, os.O_PATH | os.O_CLOEXEC)
        ruleset.allow_all(own)
        os.close(own)
        return ruleset


def confine(layers: Layers, limits: Limits, box: str, rules: Rules | None) -> int | None:
    """Apply every layer to this process; return the listener of refused calls if there is one.

    The caller must hand the listener to the zygote and close it: who holds it can allow refused calls.
    """
    kernel.prctl(kernel.PDEATHSIG, 9)
    set_limits(limits, layers)
    os.chdir(box)
    os.umask(0o022)
    kernel.prctl(kernel.NO_NEW_PRIVS, 1)
    if layers.name == "namespaces":
        kernel.drop_capabilities()
    elif layers.own_user:
        kernel.drop_capabilities(kernel.CAP_DAC_READ_SEARCH if layers.keeps_reading else None)
    if rules is not None:
        rules.ruleset(layers.landlock_abi, box).restrict()
    program = seccomp.with_pid(seccomp.compiled(layers.policy), os.getpid())
    return seccomp.install(program, layers.notifies)


def set_limits(limits: Limits, layers: Layers) -> None:
    """Set the resource limits of this process, soft and hard alike."""
    memory = limits.memory_mb * _MB
    seconds = math.ceil(limits.timeout) + 1
    values = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: limits.disk_mb * _MB,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_STACK: min(_STACK_MB * _MB, memory // 4),
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 1024,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    if layers.own_user:
        values[resource.RLIMIT_NPROC] = limits.processes + 1  # and the zygote
    for kind, value in values.items():
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, most))
