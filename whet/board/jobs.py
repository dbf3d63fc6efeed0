"""Resampling for the board: a queue of requests, answered one at a time by a process of their own.

The process is started with the first request and has one checkpoint's weights; it ends when it was idle for a while,
when a request takes too long or is cancelled, and with the board.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.errors import UserError

_MOST_WAITING = 20
_MOST_KEPT = 200
_IDLE_SECONDS = 300.0
_LONGEST_SECONDS = 1800.0
_MOST_BYTES = 200_000_000  # of an answer


@dataclass(slots=True)
class Job:
    """A request, and what became of it."""

    number: int
    folder: Path
    request: dict[str, Any]
    state: str = "waiting"  # then running, done, failed or cancelled
    answer: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class Jobs:
    """The queue. Safe to use from several threads."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "whet.resample.worker")) -> None:
        self._command = command
        self._jobs: OrderedDict[int, Job] = OrderedDict()
        self._waiting: queue.Queue[Job] = queue.Queue()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, folder: Path, request: dict[str, Any]) -> int:
        """Put a request into the queue and return its number."""
        with self._lock:
            if self._closed:
                raise UserError("the board is ending")
            if sum(job.state == "waiting" for job in self._jobs.values()) >= _MOST_WAITING:
                raise UserError(f"{_MOST_WAITING} requests are waiting already; cancel some, or wait")
            job = Job(max(self._jobs, default=0) + 1, folder, request)
            self._jobs[job.number] = job
            while len(self._jobs) > _MOST_KEPT:
                self._jobs.popitem(last=False)
            self._waiting.put(job)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="whet-board-resample", daemon=True)
                self._thread.start()
        return job.number

    def state(self, number: int) -> dict[str, Any]:
        """Return where a request stands, with its answer once there is one."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None:
                raise UserError(f"there is no request {number}; the board was started anew, or it is too old")
            before = sum(each.state == "waiting" for each in self._jobs.values() if each.number < number)
            return {"state": job.state, "before": before, "seconds": job.seconds, **job.answer}

    def cancel(self, number: int) -> None:
        """Take a request out of the queue, or end the process that is answering it."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None or job.state not in ("waiting", "running"):
                return
            running, job.state = job.state == "running", "cancelled"
        if running:
            self._end()

    def close(self) -> None:
        """Answer nothing more, and end the process."""
        with self._lock:
            self._closed = True
            for job in self._jobs.values():
                job.state = "cancelled" if job.state == "waiting" else job.state
        self._end()

    def _run(self) -> None:
        """Answer requests until none has come for a while."""
        while True:
            try:
                job = self._waiting.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self._end()
                with self._lock:
                    if self._waiting.empty():
                        self._thread = None
                        return
                continue
            with self._lock:
                if job.state != "waiting":
                    continue
                job.state = "running"
            begun = time.monotonic()
            try:
                found = self._ask(job)
            except (OSError, ValueError) as error:
                self._end()
                found = {"error": f"the process that resamples ended: {error}"}
            with self._lock:
                job.seconds = time.monotonic() - begun
                if job.state == "running":
                    job.state, job.answer = "failed" if "error" in found else "done", found

    def _ask(self, job: Job) -> dict[str, Any]:
        with self._lock:
            if self._closed or job.state != "running":  # cancelled before there was a process to end
                raise OSError("the board is ending")
            if self._process is None or self._process.poll() is not None:
                environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
            process = self._process
        assert process.stdin is not None, "it was opened with pipes"
        process.stdin.write(json.dumps({"folder": str(job.folder), "request": job.request}).encode() + b"\n")
        process.stdin.flush()
        return _read_line(process)

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):  # end of input: it closes its reward workers by itself
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(0.1 if process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _read_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Read one line within the longest time; `OSError` if the process ends before, or takes too long."""
    assert process.stdout is not None, "it was opened with pipes"
    descriptor, end, parts, size = process.stdout.fileno(), time.monotonic() + _LONGEST_SECONDS, [], 0
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise OSError(f"no answer within {_LONGEST_SECONDS:.0f} s")
        part = os.read(descriptor, 1 << 20)
        if not part:
            raise OSError("it died before it answered (too little memory is a common reason)")
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise OSError("its answer is too long")
        if part.endswith(b"\n"):
            found: dict[str, Any] = json.loads(b"".join(parts))
            return found
