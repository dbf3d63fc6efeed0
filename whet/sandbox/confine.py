"""Confine this process for good, before any text of the model is compiled.

Order matters: limits first, then privileges, Landlock, and the filter last, because it refuses the calls that the other
steps need. A page of memory that a forked process touches is copied, so that most of the cost of an execution is the
number of objects touched here: what does not depend on the program is set up once, in the zygote.
"""

from __future__ import annotations

import fcntl
import math
import os
import resource
from typing import NamedTuple

from whet.sandbox import filter as seccomp
from whet.sandbox import kernel
from whet.sandbox.landlock import FILE_ONLY, READ, READ_DEVICE, WRITE_DEVICE, Ruleset, restrict
from whet.sandbox.paths import READ_DEVICES, WRITE_DEVICES

REQUEST, CHANNEL, READY, RULESET = 3, 4, 5, 6  # descriptors of a program's process beside stdin, stdout and stderr
_MB = 1 << 20
_LASTING = {"NOFILE": 256, "CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0, "SIGPENDING": 1024, "RTPRIO": 0, "NICE": 0}
_STACK = 64 * _MB


class Bounds(NamedTuple):
    """The limits of one execution, as `limits.Limits` has checked them."""

    timeout: float
    memory_mb: int
    processes: int
    output_bytes: int
    disk_mb: int


class Layers(NamedTuple):
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
            free_attributes=self.name == "namespaces",
            free_signals=self.name == "namespaces" or self.landlock_abi >= 6,
        )


class Rules:
    """Open descriptors of the paths that programs may read, for rulesets of Landlock."""

    def __init__(self, version: int, paths: list[str]) -> None:
        rights = {path: READ if os.path.isdir(path) else READ & FILE_ONLY for path in paths}
        rights |= dict.fromkeys(READ_DEVICES, READ_DEVICE) | dict.fromkeys(WRITE_DEVICES, WRITE_DEVICE)
        flags = os.O_PATH | os.O_CLOEXEC
        self._version = version
        self._box, self._kept = "", -1  # the directory of the last ruleset, and its descriptor
        self._opened = [
            (high(os.open(path, flags)), allowed) for path, allowed in rights.items() if os.path.exists(path)
        ]

    def place(self, box: str) -> None:
        """Put a ruleset for these paths and one private directory at RULESET, for the process that is forked next."""
        if box != self._box:
            if self._kept >= 0:
                os.close(self._kept)
            self._kept, self._box = high(self._made(box).descriptor), box
        os.dup2(self._kept, RULESET)

    def _made(self, box: str) -> Ruleset:
        ruleset = Ruleset(self._version)
        for descriptor, rights in self._opened:
            ruleset.allow(descriptor, rights)
        own = os.open(box, os.O_PATH | os.O_CLOEXEC)
        ruleset.allow_all(own)
        os.close(own)
        return ruleset


class Confinement:
    """Confinement of every process of a zygote, prepared before the first is forked."""

    def __init__(self, layers: Layers) -> None:
        """Set the limits that hold for the zygote too."""
        self._layers = layers
        self._filter = seccomp.Filter(layers.policy)
        self._kept = kernel.CAP_DAC_READ_SEARCH if layers.keeps_reading else None
        self._no_capabilities = kernel.Capabilities(self._kept)
        for name, value in _LASTING.items():
            lower(getattr(resource, f"RLIMIT_{name}"), value)
        os.umask(0o022)
        kernel.prctl(kernel.NO_NEW_PRIVS, 1)

    def apply(self, bounds: Bounds) -> int | None:
        """Confine this process; return the listener of refused calls if there is one.

        The caller must hand the listener to the zygote and close it: who holds it can allow refused calls. Every
        descriptor above RULESET is closed.
        """
        memory = bounds.memory_mb * _MB
        lower(resource.RLIMIT_AS, memory)
        lower(resource.RLIMIT_CPU, math.ceil(bounds.timeout) + 1)
        lower(resource.RLIMIT_FSIZE, bounds.disk_mb * _MB)
        lower(resource.RLIMIT_STACK, min(_STACK, memory // 4))
        if self._layers.own_user:
            lower(resource.RLIMIT_NPROC, bounds.processes + 1)  # and the zygote
        if self._layers.name == "landlock":
            kernel.prctl(kernel.PDEATHSIG, 9)
            restrict(RULESET)
        kernel.close_from(RULESET)
        self._no_capabilities.set()
        return self._filter.install()


def high(descriptor: int) -> int:
    """Move a descriptor of the zygote out of the way of those that programs get."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(descriptor)
    return moved


def lower(kind: int, value: int) -> None:
    """Lower a limit of this process, soft and hard; one that is lower already stays."""
    hard = _HARD[kind]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (most, most))


_KINDS = (getattr(resource, f"RLIMIT_{name}") for name in (*_LASTING, "AS", "CPU", "FSIZE", "STACK", "NPROC"))
_HARD = {kind: resource.getrlimit(kind)[1] for kind in _KINDS}
