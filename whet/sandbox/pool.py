"""A pool of zygotes: `Sandbox.run` executes one program, from any number of threads at once.

The layers are chosen once, by trying: namespaces, else Landlock with seccomp. If neither can be had, `Sandbox` raises
UserError; nothing ever runs unconfined.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from whet.errors import UserError
from whet.sandbox.languages import Language, language
from whet.sandbox.limits import Limits, Result
from whet.sandbox.names import checked_files, encoded_files
from whet.sandbox.running import Running, wait
from whet.sandbox.worker import NotConfinedError, Nursery, Worker

LAYERS = ("namespaces", "landlock")


class Sandbox:
    """Confined execution of programs, `workers` of them at once.

    `layers` is "auto", "namespaces" or "landlock"; `folder` is the one to make a folder for programs' files in. Use it
    as a context manager, or call `close`.
    """

    def __init__(
        self,
        workers: int | None = None,
        layers: str = "auto",
        limits: Limits | None = None,
        folder: str | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.workers = workers or os.cpu_count() or 1
        if not 1 <= self.workers <= 256:
            raise UserError(f"sandbox.workers={workers}: give a number from 1 to 256")
        _check_platform()
        self._pid = os.getpid()
        self._nursery = Nursery(folder)
        self._free: list[Worker] = []
        self._permits = threading.Semaphore(self.workers)
        self._lock = threading.Lock()
        self._closed = False
        try:
            self.layers = self._choose(layers)
        except BaseException:
            self._nursery.close()
            raise

    @property
    def description(self) -> dict[str, Any]:
        """Return the layers in use, for logs."""
        return dict(self._found)

    def run(
        self,
        program: str,
        stdin: str | bytes = "",
        limits: Limits | None = None,
        files: Mapping[str, bytes] | None = None,
        name: str = "python",
    ) -> Result:
        """Run a program in a language to its end and return what it wrote; blocks while all workers are busy.

        `files` are written to its private directory first, by their relative names.
        """
        chosen, bounds = language(name), limits or self.limits
        entry = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
        extra = checked_files(files or {})
        with self.worker() as worker:
            if chosen.name == "python":
                return self._python(worker, program, entry, bounds, extra)
            return self._compiled(worker, chosen, program, entry, bounds, extra)

    @contextlib.contextmanager
    def worker(self) -> Iterator[Slot]:
        """Hold one of the workers."""
        if self._closed or os.getpid() != self._pid:
            raise RuntimeError("this sandbox is closed, or belongs to the process that this one was forked from")
        with self._permits:
            slot = Slot(self)
            try:
                yield slot
            finally:
                slot.release()

    def take(self) -> Worker:
        """Return an idle zygote, or a new one."""
        with self._lock:
            if self._free:
                return self._free.pop()
        return self._nursery.fork(self.layers)

    def put_back(self, worker: Worker) -> None:
        """Keep a zygote for the next program."""
        with self._lock:
            if not self._closed:
                self._free.append(worker)
                return
        worker.close()

    def close(self) -> None:
        """End all processes and remove the pool's folder."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
            free, self._free = self._free, []
        for worker in free:
            worker.close()
        self._nursery.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _choose(self, layers: str) -> str:
        """Start the first zygote with the best layers there are; UserError with all reasons if there are none."""
        if layers not in ("auto", *LAYERS):
            raise UserError(f"sandbox.layers={layers}: write auto, {' or '.join(LAYERS)}")
        reasons = []
        for each in LAYERS if layers == "auto" else (layers,):
            try:
                worker = self._nursery.fork(each)
            except NotConfinedError as error:
                reasons.append(f"{each}: {error}")
                continue
            self._found = worker.layers
            self._free.append(worker)
            return each
        raise UserError(
            f"sandbox.layers={layers}: programs cannot be confined here, so none is run ({'; '.join(reasons)}). Allow "
            "user namespaces or use a kernel with Landlock (Linux 5.13 or newer), or name a remote one in sandbox.url"
        )

    def _python(self, slot: Slot, program: str, stdin: bytes, limits: Limits, files: dict[str, str]) -> Result:
        if not files:
            return slot.run("script", program.encode("utf-8", "surrogateescape"), limits, stdin)
        return slot.run("files", {"source": program, "files": files}, limits, stdin)

    def _compiled(
        self, slot: Slot, chosen: Language, program: str, stdin: bytes, limits: Limits, files: dict[str, str]
    ) -> Result:
        """Write the program to a file, compile it if the language needs that, and run it in the same directory."""
        given = files | encoded_files({chosen.file: program.encode("utf-8", "surrogateescape")})
        if chosen.compiler is None:
            return slot.run("execute", {"argv": list(chosen.argv), "files": given}, limits, stdin)
        made = slot.run(
            "execute", {"argv": list(chosen.compiler), "files": given}, chosen.bounds(limits), keep="program"
        )
        if made.status != "ok":
            text = made.stdout + made.stderr
            return Result("compile_error", made.exit_code, "", text, made.seconds, made.refused, compile_output=text)
        result = slot.run("execute", {"argv": list(chosen.argv)}, limits, stdin, reuse=True)
        return Result(**{**result.__dict__, "compile_output": made.stdout + made.stderr})


class Slot:
    """A place in the pool: one zygote, and a second one where a program and its tests run at the same time."""

    def __init__(self, pool: Sandbox) -> None:
        self._pool = pool
        self._held: list[Worker] = []

    def zygote(self, index: int = 0) -> Worker:
        """Return the first or second zygote of this place."""
        while len(self._held) <= index:
            self._held.append(self._pool.take())
        return self._held[index]

    def run(
        self, mode: str, request: dict[str, Any] | bytes, limits: Limits, stdin: bytes = b"", **options: Any
    ) -> Result:
        """Run one request to its end."""
        running = self.zygote().start(mode, request, limits, stdin, **options)
        return self.finish([running])[0]

    def finish(self, runs: list[Running], until: Running | None = None) -> list[Result]:
        """Wait for executions on the zygotes of this place, in their order, and replace zygotes that are lost."""
        wait(runs, until)
        lost = [run.lost for run in runs]
        for index, is_lost in reversed(list(enumerate(lost))):
            if is_lost:
                self._held.pop(index).kill()
        results = [run.result() for run in runs]
        for run in runs:
            if run.problem:
                raise RuntimeError(f"a process of the sandbox could not be confined and ran nothing: {run.problem}")
        return results

    def release(self) -> None:
        """Give the zygotes back."""
        for worker in self._held:
            self._pool.put_back(worker)
        self._held.clear()


def _check_platform() -> None:
    if not sys.platform.startswith("linux"):
        raise UserError(
            f"the sandbox confines programs by Linux namespaces, Landlock and seccomp; {sys.platform} has none of "
            "them: run it in a Linux machine and name that in sandbox.url"
        )
