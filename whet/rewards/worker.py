"""A worker process: loads the reward function, then scores whatever comes down its pipe until the pipe closes.

It imports nothing heavy, because a worker is started anew after every sample that hangs. The user's code runs in the
main thread (answer checkers use `signal.alarm`). Inputs arrive pickled; replies leave as JSON, so that nothing a reward
function does can make the trainer unpickle its objects.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
import pickle
import random
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.rewards.function import find_function, load_module
from whet.rewards.result import BadResultError, read_batch, read_scores
from whet.rewards.signature import RewardFunction, bind

TRACEBACK_LIMIT = 6000  # characters
WHERE_SIGNAL = signal.SIGUSR1  # asks the worker to write where it is to its trace pipe
PACKAGE_FOLDER = os.path.dirname(os.path.abspath(__file__))


def main(channel: int, lifeline: int, trace: int) -> None:
    """Serve one pool; the three arguments are file descriptors inherited from it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in (channel, lifeline, trace):
        os.set_inheritable(descriptor, False)
    die_with_parent(lifeline)
    faulthandler.register(WHERE_SIGNAL, file=trace, all_threads=False)
    with contextlib.suppress(OSError):  # when memory runs out, a worker should go before the trainer
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(EOFError, ConnectionError):
        serve(Connection(channel))
    os._exit(0)  # threads that the user's code left behind must not keep the process


def die_with_parent(lifeline: int) -> None:
    """End this process, with all that the user's code started, when the other end of the lifeline closes.

    On Linux the kernel sends the signal, which also ends C code that never lets another thread run. (PR_SET_PDEATHSIG
    would not do: it fires when the *thread* that started the worker ends.)
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    else:
        threading.Thread(target=kill_group_at_end_of, args=(lifeline,), daemon=True).start()


def kill_group_at_end_of(lifeline: int) -> None:
    """Block until the lifeline closes, then kill this process group."""
    os.read(lifeline, 1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def serve(channel: Connection) -> None:
    """Say hello with the form of the function, or with what is wrong with it; then answer calls."""
    source, declared, options = pickle.loads(channel.recv_bytes())
    sys.argv = [source.path]
    try:
        module = load_module(source)
        declared = declared or getattr(module, "REWARD_TYPE", None)
        function = bind(find_function(module, source), source, declared, options)
    except UserError as error:
        _send(channel, {"error": str(error)})
        return
    home = os.open(".", os.O_RDONLY)
    _send(channel, {"batch": function.form.batch})
    while True:
        call = channel.recv_bytes()
        os.fchdir(home)
        _send(channel, answer(function, call))


def answer(function: RewardFunction, call: bytes) -> dict[str, Any]:
    """Score one call and describe the outcome: {"results": [...]}, {"raised": ...} or {"bad": ...}."""
    try:
        seed, inputs = pickle.loads(call)
        _seed_everything(seed)
        value = function(inputs)
        values = read_batch(value, len(inputs)) if function.form.batch else [value]
        return {"results": [_read(value, function.form.verl) for value in values]}
    except BadResultError as error:
        return {"bad": str(error)}
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: the sample's fault, not the run's
        return {"raised": _traceback(error), "cause": _cause(error)}


def _read(value: Any, verl: bool) -> dict[str, Any]:
    try:
        return {"scores": read_scores(value, verl)}
    except BadResultError as error:
        return {"bad": str(error)}


def _seed_everything(seed: str) -> None:
    """Rewards that draw random numbers draw the same ones in whichever worker they land."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(random.getrandbits(32))
        random.seed(seed)


def _traceback(error: BaseException) -> str:
    """The traceback from the user's first frame on."""
    frames = error.__traceback__
    while frames is not None and os.path.dirname(frames.tb_frame.f_code.co_filename) == PACKAGE_FOLDER:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    return text if len(text) <= TRACEBACK_LIMIT else "...\n" + text[-TRACEBACK_LIMIT:]


def _cause(error: BaseException) -> str:
    """Type and line: two errors with the same cause are reported once."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} at {frames[-1].filename}:{frames[-1].lineno}"


def _send(channel: Connection, reply: dict[str, Any]) -> None:
    channel.send_bytes(json.dumps(reply).encode())
