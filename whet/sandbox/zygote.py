"""A zygote: forks a confined process for every execution, watches it, and ends everything it started.

It holds no text of the model: programs, their input and their output travel through descriptors that the trainer's
process opens and the forked process reads, so that the memory a program inherits knows nothing of other programs.
It runs one program at a time and ends when its socket closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any

from whet.sandbox.boxes import Folder, Tmpfs
from whet.sandbox.child import run_child
from whet.sandbox.confine import READY, RULESET, Bounds, Confinement, Layers, Rules, high
from whet.sandbox.notices import Notices
from whet.sandbox.tree import Tree

_TICK = 0.05  # seconds between two measurements of memory and disk
_MB = 1 << 20
_GIVEN = [0, 1, 2, 3, 4]  # descriptors of stdin, stdout, stderr, the request and the channel


class Zygote:
    """One confined place to run programs in.

    Descriptors 0 to 4 are closed between programs: those that arrive with an order take these places by themselves.
    """

    def __init__(
        self, channel: socket.socket, layers: Layers, proc: int | None, rules: Rules | None, box: Tmpfs | Folder
    ) -> None:
        self.layers, self.rules, self.box = layers, rules, box
        own = layers.own_user or layers.name == "namespaces"
        self.tree = Tree(high(proc) if proc is not None else None, alone=own)
        self.channel = _moved(channel)
        ready, self.ready_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ready = _moved(ready)
        self.ready.setblocking(False)
        os.dup2(self.ready_child.fileno(), READY)
        self.ready_child.close()
        self.ready_child = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=READY)
        self.confinement = Confinement(layers)
        self._kept = False  # the box holds what a compiler made
        os.closerange(0, READY)
        os.closerange(RULESET, 64)

    def serve(self) -> None:
        """Run programs until the socket closes."""
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.channel, 65536, len(_GIVEN))
            if not message:
                break
            order = json.loads(message)
            if order["kind"] == "run":
                if descriptors != _GIVEN:
                    raise OSError(f"descriptors {descriptors} arrived out of place")
                end = self._run(order)
                try:
                    self.channel.send(json.dumps(end).encode())
                except OSError:
                    break
        self.box.end()

    def _run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run one program to its end; nothing of it is left when this returns."""
        bounds = Bounds(*order["limits"])
        if self._kept and not order.get("reuse"):
            self.box.close()
            self._kept = False
        if not self._kept:
            self.box.open(bounds.disk_mb)
        if self.rules is not None:
            self.rules.place(self.box.path)
        os.chdir(self.box.path)
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            try:
                run_child(order["mode"], bounds, self.confinement, self.ready_child)
            finally:
                os._exit(125)
        os.closerange(0, READY)
        if self.rules is not None:
            os.close(RULESET)
        os.chdir("/")
        end = _Watch(self, pid, began, bounds).until_end()
        self._kept = bool(order.get("keep")) and end["status"] == 0
        if self._kept:
            self.box.make_executable(order["keep"])
        else:
            self.box.close()
        return end


def _moved(one: socket.socket) -> socket.socket:
    """Return a socket with a high descriptor."""
    return socket.socket(one.family, one.type, one.proto, fileno=high(one.detach()))


class _Watch:
    """Supervision of one program from its fork to the end of its last process."""

    def __init__(self, zygote: Zygote, pid: int, began: float, bounds: Bounds) -> None:
        self._zygote, self._pid, self._bounds = zygote, pid, bounds
        self._began, self._deadline = began, began + bounds.timeout
        self._notices: Notices | None = None
        self._problem = ""  # why the process could not be confined
        self._ended = False

    def until_end(self) -> dict[str, Any]:
        """Wait for the program or a limit; return what the trainer's side is told."""
        handle = os.pidfd_open(self._pid)
        try:
            why = self._wait(handle)
            self._ended = True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            _, status, usage = os.wait4(self._pid, 0)
            seconds = time.monotonic() - self._began
            self._zygote.tree.end()
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
        ready, channel = self._zygote.ready.fileno(), self._zygote.channel.fileno()
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
                # Never more than a tenth of the time, however large the tree of processes or files is.
                tick = time.monotonic() + max(_TICK, 9 * (time.monotonic() - now))
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
            message, descriptors, _, _ = socket.recv_fds(self._zygote.ready, 4096, 1)
        except BlockingIOError:
            return
        if descriptors:
            self._notices = Notices(high(descriptors[0]), self._may_fork)
            if poll:
                poll.register(self._notices.listener, select.POLLIN)
        elif message != b"confined":
            self._problem = message.decode(errors="replace")

    def _may_fork(self) -> bool:
        return not self._ended and self._zygote.tree.tasks() < self._bounds.processes

    def _over_limit(self) -> str:
        if self._zygote.layers.sums_memory and self._zygote.tree.memory() > self._bounds.memory_mb * _MB:
            return "memory"
        return "disk" if self._zygote.box.usage() > self._bounds.disk_mb * _MB else ""
