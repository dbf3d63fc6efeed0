"""A zygote: forks a confined process for every execution, watches it, and ends everything it started.

It holds no text of the model: programs, their input and their output travel through descriptors that the trainer's
process opens and the forked process reads, so that the memory a program inherits knows nothing of other programs.
It runs one program at a time and ends when its socket closes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import time
from typing import Any

from whet.sandbox.boxes import Folder, Tmpfs
from whet.sandbox.child import CHANNEL, READY, REQUEST, run_child
from whet.sandbox.confine import Layers, Rules
from whet.sandbox.kernel import call
from whet.sandbox.limits import Limits
from whet.sandbox.notices import Notices
from whet.sandbox.tree import Tree

_TICK = 0.05  # seconds between two measurements of memory and disk
_MB = 1 << 20
_MOST_DESCRIPTORS = 8
_HIGH = 64  # descriptors are moved above this before they get their places


class Zygote:
    """One confined place to run programs in."""

    def __init__(
        self, channel: socket.socket, layers: Layers, proc: int | None, rules: Rules | None, box: Tmpfs | Folder
    ) -> None:
        self._channel, self.layers, self._rules, self._box = channel, layers, rules, box
        self._tree = Tree(proc, alone=layers.own_user or layers.name == "namespaces")
        self._ready, self._ready_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._kept = False  # the box holds what a compiler made

    def serve(self) -> None:
        """Run programs until the socket closes."""
        while True:
            message, descriptors, _, _ = socket.recv_fds(self._channel, 65536, _MOST_DESCRIPTORS)
            if not message:
                break
            order = json.loads(message)
            if order["kind"] == "run":
                end = self._run(order, descriptors)
                try:
                    self._channel.send(json.dumps(end).encode())
                except OSError:
                    break
        if self._kept:
            self._box.close()

    def _run(self, order: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Run one program to its end; nothing of it is left when this returns."""
        limits = Limits(**order["limits"])
        if self._kept and not order.get("reuse"):
            self._box.close()
            self._kept = False
        if not self._kept:
            self._box.open(limits.disk_mb)
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._become_child(order, limits, descriptors)
        for each in descriptors:
            os.close(each)
        watch = _Watch(self, pid, began, limits)
        end = watch.until_end()
        self._kept = bool(order.get("keep")) and end["status"] == 0
        if not self._kept:
            self._box.close()
        return end

    def _become_child(self, order: dict[str, Any], limits: Limits, descriptors: list[int]) -> None:
        """Arrange descriptors and run; never returns."""
        try:
            os.setsid()
            arrange([*descriptors, self._ready_child.fileno()], [REQUEST, 0, 1, 2, CHANNEL, READY])
            run_child(order, limits, self.layers, self._rules, self._box.path)
        finally:
            os._exit(125)


def arrange(descriptors: list[int], places: list[int]) -> None:
    """Move descriptors to their places and close every other one."""
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, _HIGH) for each in descriptors]
    for each, place in zip(high, places):
        os.dup2(each, place)
    call("close_range", max(places) + 1, 0x7FFFFFFF, 0)


class _Watch:
    """Supervision of one program from its fork to the end of its last process."""

    def __init__(self, zygote: Zygote, pid: int, began: float, limits: Limits) -> None:
        self._zygote, self._pid, self._limits = zygote, pid, limits
        self._began, self._deadline = began, began + limits.timeout
        self._notices: Notices | None = None
        self._problem = ""  # why the process could not be confined
        self._ended = False

    def until_end(self) -> dict[str, Any]:
        """Wait for the program or a limit; return what the trainer's side is told."""
        tree = self._zygote._tree
        handle = os.pidfd_open(self._pid)
        try:
            why = self._wait(handle)
            self._ended = True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            _, status, usage = os.wait4(self._pid, 0)
            seconds = time.monotonic() - self._began
            tree.end()
            return {
                "why": why,
                "problem": self._problem,
                "status": status,
                "seconds": seconds,
                "peak_mb": usage.ru_maxrss // 1024,
                "refused": list(self._notices.refused) if self._notices else [],
            }
        finally:
            os.close(handle)
            if self._notices is None:
                self._take_listener(None)  # of a process that was killed before anybody looked
            if self._notices:
                self._notices.close()

    def _wait(self, handle: int) -> str:
        """Return "exit", or the limit or order that ends the program."""
        ready, channel = self._zygote._ready.fileno(), self._zygote._channel.fileno()
        poll = select.poll()
        for descriptor in (handle, ready, channel):
            poll.register(descriptor, select.POLLIN)
        tick = self._began + _TICK
        while True:
            now = time.monotonic()
            if now >= self._deadline:
                return "timeout"
            if now >= tick:
                if why := self._over_limit():
                    return why
                tick = max(now, tick) + max(_TICK, 10 * (time.monotonic() - now))
            events = dict(poll.poll(max(0.0, min(tick, self._deadline) - now) * 1000 + 1))
            if ready in events:
                self._take_listener(poll)
            if self._notices and events.get(self._notices.listener, 0) & select.POLLIN:
                self._notices.answer()
            elif self._notices and self._notices.listener in events:  # nobody is left who could be refused
                poll.unregister(self._notices.listener)
            if handle in events:
                return "exit"
            if channel in events:
                return "killed"  # by order, or because the trainer's side is gone; `serve` reads which

    def _take_listener(self, poll: select.poll | None) -> None:
        """Read what the process says of its confinement, if it has said it."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._zygote._ready, 4096, 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if descriptors:
            self._notices = Notices(descriptors[0], self._may_fork)
            if poll:
                poll.register(descriptors[0], select.POLLIN)
        elif message != b"confined":
            self._problem = message.decode(errors="replace")

    def _may_fork(self) -> bool:
        return not self._ended and self._zygote._tree.tasks() < self._limits.processes

    def _over_limit(self) -> str:
        if self._zygote.layers.sums_memory and self._zygote._tree.memory() > self._limits.memory_mb * _MB:
            return "memory"
        return "disk" if self._zygote._box.usage() > self._limits.disk_mb * _MB else ""
