"""A worker process: loads the reward function, then scores whatever comes down its socket until that closes.

It imports nothing heavy, because a worker is started anew after every sample that hangs. The user's code runs in the
main thread (answer checkers use `signal.alarm`). Functions of the standard library that answering needs are imported by
name: what the user's code does to `json` or `os` (`os.write = None`) does not reach them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import random
import resource
import signal
import sys
from io import FileIO, TextIOWrapper
from os import _exit, getpid, register_at_fork, set_inheritable
from os import close as close_descriptor
from os import read as read_descriptor
from os import write as write_descriptor
from os.path import abspath, dirname
from pathlib import Path
from pickle import loads
from traceback import extract_tb, format_exception
from typing import Any

from whet.errors import UserError
from whet.rewards.baseline import Baseline
from whet.rewards.combined import Combination
from whet.rewards.combined import load as load_parts
from whet.rewards.loading import find_function, load_module
from whet.rewards.programs import opened
from whet.rewards.returned import BadResultError, read_batch, read_scores
from whet.rewards.setup import WorkerSetup
from whet.rewards.signature import RewardFunction, bind
from whet.rewards.wire import (
    BAD,
    BUSY,
    CALL_ID_BYTES,
    HELLO,
    LAST,
    LENGTH,
    RAISED,
    REFUSED,
    RESULTS,
    WHERE_SIGNAL,
    Reply,
    Result,
    encode_reply,
)

TRACEBACK_LIMIT = 6000  # characters
PACKAGE_FOLDER = dirname(abspath(__file__))

_seed = random.seed
_random_bits = random.getrandbits


def main(channel: int, trace: int, scratch: str) -> None:
    """Serve one pool; the arguments are inherited file descriptors and a folder to make. Does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in (channel, trace):
        set_inheritable(descriptor, False)
    faulthandler.register(WHERE_SIGNAL, file=trace, all_threads=False)
    sys.stdout = sys.__stdout__ = _stream(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2)  # type: ignore[misc]
    with contextlib.suppress(OSError):  # when memory runs out, a worker should go before the trainer
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        serve(Socket(channel), scratch)
    except (EOFError, ConnectionError):
        _exit(0)
    except BaseException as error:  # the user's code has closed or broken what answering needs
        with contextlib.suppress(BaseException):
            write_descriptor(2, _traceback(error).encode("utf-8", "backslashreplace"))
        _exit(1)


def _stream(descriptor: int) -> TextIOWrapper:
    """Unbuffered text output; half a surrogate pair that is printed must not fail a sample."""
    raw = FileIO(descriptor, "w", closefd=False)
    return TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)  # type: ignore[arg-type]


class Socket:
    """The worker's end: reads calls, writes replies to them. A forked process has no such end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pid = getpid()
        self._call = b""
        register_at_fork(after_in_child=self._leave)

    def receive(self) -> bytes:
        """The next message, which begins with the id of its call."""
        head = self._read(LENGTH.size + CALL_ID_BYTES)
        (size,) = LENGTH.unpack_from(head)
        self._call = head[LENGTH.size :]
        return self._read(size - CALL_ID_BYTES)

    def send(self, reply: Reply) -> None:
        """Answer the latest call. A fork of the worker that comes here, where its parent answers too, ends."""
        if getpid() != self._pid:
            _exit(0 if reply.kind == RESULTS else 1)
        left = memoryview(encode_reply(reply, self._call, self._pid))
        while left:
            left = left[write_descriptor(self._descriptor, left) :]

    def _read(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = read_descriptor(self._descriptor, min(size, 1 << 20))
            if not piece:
                raise EOFError
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _leave(self) -> None:
        with contextlib.suppress(OSError):
            close_descriptor(self._descriptor)


def serve(channel: Socket, scratch: str) -> None:
    """Say hello with the form of the function, or with what is wrong with it; then answer calls."""
    setup: WorkerSetup = loads(channel.receive())
    opened.configure(setup.sandbox, scratch)
    sys.argv = [setup.source.path]
    _limit_memory(setup.memory_limit_mb)
    try:
        function = _load(setup)
    except UserError as error:
        hint = f" (worker.reward.memory_limit_mb={setup.memory_limit_mb})" if "MemoryError" in str(error) else ""
        channel.send(Reply(REFUSED, f"{error}{hint}"))
        return
    baseline = Baseline()
    channel.send(Reply(HELLO, batch=function.form.batch, wanted=function.wanted))
    sound = True
    while sound:
        reply = answer(function, channel.receive())
        sound = baseline.restore()
        flags = (0 if sound else LAST) | (BUSY if baseline.is_busy() else 0)
        channel.send(Reply(reply.kind, reply.text, reply.cause, results=reply.results, flags=flags))


def _load(setup: WorkerSetup) -> RewardFunction | Combination:
    if setup.parts:
        return load_parts(setup.parts, setup.declared)
    source = setup.source
    module = load_module(source)
    declared = setup.declared or getattr(module, "REWARD_TYPE", None)
    needs = getattr(module, "REWARD_NEEDS", ())
    return bind(find_function(module, source), source, declared, setup.options, needs)


def _limit_memory(megabytes: int | None) -> None:
    """Bound what this process, and each that it starts, may allocate. Mapped files and shared memory do not count."""
    if megabytes is not None:
        kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        most = megabytes << 20
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def answer(function: RewardFunction | Combination, call: bytes) -> Reply:
    """Score one call and describe the outcome."""
    try:
        seed, inputs, seconds = loads(call)
        _seed_everything(seed)
        opened.begin_call(seconds)
        size = len(inputs)  # the function may change the list
        value = _call(function, inputs)
        values = read_batch(value, size) if function.form.batch else [value]
        return Reply(RESULTS, results=[_read(value, function.form.verl) for value in values])
    except BadResultError as error:
        return Reply(BAD, str(error))
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: the sample's fault, not the run's
        return Reply(RAISED, _traceback(error), _cause(error))


def _call(function: RewardFunction | Combination, inputs: list[dict[str, Any]]) -> Any:
    """Call the function; a forked process that it left by sys.exit ends with that code."""
    caller = getpid()
    try:
        return function(inputs)
    except SystemExit as error:
        if getpid() != caller:
            _exit(error.code if isinstance(error.code, int) else int(error.code is not None))
        raise


def _read(value: Any, verl: bool) -> Result:
    try:
        return read_scores(value, verl)
    except BadResultError as error:
        return str(error)


def _seed_everything(seed: bytes) -> None:
    """Rewards that draw random numbers draw the same ones in whichever worker they land."""
    try:
        _seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(_random_bits(32))
            _seed(seed)
    except Exception:  # an earlier call may have broken either; that is no fault of this sample
        return


def _traceback(error: BaseException) -> str:
    """The traceback from the user's first frame on."""
    frames = error.__traceback__
    while frames is not None and dirname(frames.tb_frame.f_code.co_filename) == PACKAGE_FOLDER:
        frames = frames.tb_next
    try:
        text = "".join(format_exception(type(error), error, frames))
    except BaseException:  # of an exception that cannot be shown
        text = f"{type(error).__name__}, which cannot be shown"
    return text if len(text) <= TRACEBACK_LIMIT else "...\n" + text[-TRACEBACK_LIMIT:]


def _cause(error: BaseException) -> str:
    """Type and line: two errors with the same cause are reported once."""
    frames = extract_tb(error.__traceback__)
    return f"{type(error).__name__} at {frames[-1].filename}:{frames[-1].lineno}"
