"""The trainer's end of one worker process: start it, hand it a call, read the reply, kill it.

Workers are started by executing a fresh interpreter. `fork` would copy torch's threads in an unknown state, and
multiprocessing's `spawn` runs the trainer's main module again, which imports torch. The process started here is the
worker's keeper (keeper.py), whose child the worker is.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from itertools import takewhile
from tempfile import gettempdir

from whet.rewards.calls import Task
from whet.rewards.channel import Channel
from whet.rewards.setup import WorkerSetup
from whet.rewards.wire import (
    BUSY,
    CALL_ID_BYTES,
    END_SECONDS,
    HELLO,
    HELLO_LIMIT,
    LAST,
    REFUSED,
    RESULT_LIMIT,
    RESULTS,
    STATUS,
    WHERE_SIGNAL,
    Reply,
    WireError,
    printable,
)
from whet.rewards.wire import decode_reply as decode
from whet.system.folders import fast_folder

START_SECONDS = 120.0  # reward files may import large packages
TRACE_SECONDS = 0.1
PACKAGE_FOLDER = os.path.dirname(os.path.abspath(__file__))

_BOOT = (
    "import sys; fds = map(int, sys.argv[1:4]); paths = sys.argv[4:6]; sys.path[:] = sys.argv[6:]; "
    "from whet.rewards.keeper import main; main(*fds, *paths)"
)


class WorkerGoneError(Exception):
    """The worker ended, or no longer keeps to the protocol; the message says how."""


class WorkerProcess:
    """One worker, from its start to its end."""

    def __init__(self, setup: WorkerSetup) -> None:
        """Start it; OSError where the system has no process or file descriptor left."""
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            channel, far = socket.socketpair()
            ours.callback(channel.close)
            theirs.callback(far.close)
            self._lifeline, lifeline = socket.socketpair()  # its end, also by our death, ends the worker
            ours.callback(self._lifeline.close)
            theirs.callback(lifeline.close)
            self._trace, trace = os.pipe()
            ours.callback(os.close, self._trace)
            theirs.callback(os.close, trace)
            inherited = (far.fileno(), lifeline.fileno(), trace)
            paths = [entry for entry in sys.path if isinstance(entry, str)]
            log = str(setup.output.absolute()) if setup.output else ""
            scratch = f"{fast_folder() or gettempdir()}/whet-reward-{os.urandom(8).hex()}"
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-c", _BOOT, *map(str, inherited), log, scratch, *paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=inherited,
                env=_environment(),
                start_new_session=True,  # Ctrl-C reaches the trainer only
            )
            self._ours = ours.pop_all()
        self.channel = Channel(channel)
        self._status = b""  # what the keeper has said of the worker's end
        self._is_ended = False
        self.pid: int | None = None  # of the process that runs the function, once it has said hello
        self.batch = False
        self.wanted: frozenset[str] = frozenset()  # what the function asks for besides the row
        self.task: Task | None = None  # what it is working on
        self.served = 0  # calls it has answered
        self.is_busy = False  # calls have left threads or processes behind
        self.is_last = False  # it has answered its last call
        self.deadline = time.monotonic() + START_SECONDS
        self._size = 0  # samples of its latest call
        self._call = os.urandom(CALL_ID_BYTES)
        self.channel.send(self._call + pickle.dumps(setup))

    @property
    def ready(self) -> bool:
        """True once it has loaded the function."""
        return self.pid is not None

    def call(self, task: Task, payload: bytes, size: int, budget: float) -> None:
        """Hand over a call with so many samples; its clock starts now."""
        self.task = task
        self.deadline = time.monotonic() + budget
        self._size = size
        self._call = os.urandom(CALL_ID_BYTES)
        self.channel.send(self._call + payload)
        self._wake_keeper()  # an earlier call may have stopped it, and then nobody reads what is printed

    def receive(self) -> Reply | None:
        """The reply to the latest call (at first, the hello), or None when it is not there yet."""
        try:
            message = self.channel.receive(HELLO_LIMIT + self._size * RESULT_LIMIT)
            if message is None:
                return None
            reply, pid = decode(message, self._call, self.pid)
            if self.ready is (reply.kind in (HELLO, REFUSED)):
                raise WireError("it is of the wrong kind")
            if reply.kind == RESULTS and len(reply.results) != self._size:
                raise WireError(f"it has {len(reply.results)} results for {self._size} samples")
        except EOFError:
            raise WorkerGoneError(self._ending()) from None
        except WireError as error:
            raise WorkerGoneError(
                f"its reply could not be read: {error}; reward code must not write to files it did not open"
            ) from None
        if not self.ready:
            self.pid, self.batch = (pid, reply.batch) if reply.kind == HELLO else (None, False)
            self.wanted = reply.wanted
            return reply
        self.served += 1
        self.is_busy = bool(reply.flags & BUSY)
        self.is_last = bool(reply.flags & LAST)
        return reply

    def where(self) -> str:
        """The user's frames in a worker that does not answer, innermost first; empty when it cannot tell."""
        self.process.send_signal(WHERE_SIGNAL)  # the keeper hands it on
        text = b""
        end = time.monotonic() + TRACE_SECONDS
        while (left := end - time.monotonic()) > 0 and select.select([self._trace], [], [], left)[0]:
            piece = os.read(self._trace, 4096)
            text += piece
            if not piece or len(text) > 4096:
                break
            end = min(end, time.monotonic() + TRACE_SECONDS / 5)
        lines = printable(text.decode(errors="replace")).splitlines()
        return "\n".join(takewhile(lambda line: PACKAGE_FOLDER not in line, lines))

    def is_sound(self) -> bool:
        """True for a worker without a call that is there and waits for one."""
        return self.channel.is_silent()

    def release(self) -> None:
        """Have the keeper end the worker and all that the user's code started; `kill` waits for it."""
        if not self.channel.closed:
            self.channel.close()
            with contextlib.suppress(OSError):
                self._lifeline.shutdown(socket.SHUT_WR)
            self._wake_keeper()

    def kill(self) -> None:
        """End the worker and all that the user's code started in it."""
        if self._is_ended:
            return
        self._is_ended = True
        self.release()
        try:
            self.process.wait(timeout=END_SECONDS + 1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._exit_code() is None and self.pid is not None:  # the keeper was killed before it could do its work
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._ours.close()

    def _wake_keeper(self) -> None:
        if self.process.returncode is None:  # the pid is not another's before we have waited for it
            os.kill(self.process.pid, signal.SIGCONT)

    def _ending(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1)
            code = self._exit_code()
            if code is None:
                return "the process that starts the worker was killed; reward code must not signal its parent"
            if code < 0:
                return f"the worker process was killed by {_name(-code)}"
            return f"the worker process exited with code {code}"
        return "the worker process closed its pipe"

    def _exit_code(self) -> int | None:
        """Return the worker's exit code (minus the signal's number where one killed it), as its keeper told."""
        with contextlib.suppress(OSError):
            self._status += self._lifeline.recv(STATUS.size - len(self._status), socket.MSG_DONTWAIT)
        return os.waitstatus_to_exitcode(*STATUS.unpack(self._status)) if len(self._status) == STATUS.size else None


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have none
        return f"signal {number}"


def _environment() -> dict[str, str]:
    """Ours, with string hashes fixed (a set's order must not differ between workers) and one thread per worker."""
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONHASHSEED": "0"}
