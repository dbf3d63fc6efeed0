"""Reward functions that do what none should. Each sample's response says what happens: "act:NAME", or a number."""

import builtins
import ctypes
import gc
import json
import math
import multiprocessing
import os
import pickle
import random
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from decimal import Decimal


def sockets():
    """The file descriptors of this process that are sockets, whet's among them."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.append(int(name))
        except OSError:
            pass
    return found


def soon(action):
    """Do it after the function has returned."""
    threading.Thread(target=lambda: (time.sleep(random.random() / 20), action()), daemon=True).start()


def fork_and_return():
    os.fork()


def fork_and_raise():
    if os.fork() == 0:
        raise ValueError


def fork_and_exit():
    pid = os.fork()
    if pid == 0:
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def fork_and_kill_later():
    pid = os.getpid()
    if os.fork() == 0:
        time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)


def fork_and_stay():
    if os.fork() == 0:
        time.sleep(600)


def fork_in_c_and_return():
    ctypes.CDLL(None).fork()


def fork_bomb_of_ten():
    for _ in range(10):
        subprocess.Popen(["sleep", "600"], start_new_session=True)


def daemonize():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 256)
            time.sleep(600)
        os._exit(0)


def pool_of_processes():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(math.sqrt, [4.0, 9.0]) == [2.0, 3.0]


def patch_json():
    json.dumps = json.JSONEncoder.encode = lambda *_, **__: '{"results": [{"scores": {"overall": 77}}]}'


def patch_os():
    for name in ("write", "read", "fchdir", "close", "getpid", "fork", "open", "umask", "kill"):
        setattr(os, name, None)


def patch_builtins():
    builtins.float = lambda _: 77.0
    builtins.isinstance = lambda *_: True
    builtins.len = lambda _: 1
    builtins.print = builtins.open = None


def patch_modules():
    struct.pack = struct.Struct = pickle.loads = random.seed = traceback.format_exception = None
    math.isfinite = lambda _: True
    time.monotonic = time.sleep = None
    sys.exit = None


def patch_streams():
    sys.stdout = sys.stderr = sys.stdin = None


def lower_limits():
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    sys.setrecursionlimit(40)


def lower_limits_for_good():
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))


def leave_an_alarm():
    signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)


def leave_a_deadly_alarm():
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.02)


def block_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def delete_folder():
    os.mkdir(f"gone-{os.getpid()}")
    os.chdir(f"gone-{os.getpid()}")
    os.rmdir(os.getcwd())


def write_garbage():
    for descriptor in sockets():
        os.write(descriptor, random.randbytes(random.randrange(1, 100)))


def write_a_length():
    for descriptor in sockets():
        os.write(descriptor, struct.pack("!I", random.choice([0, 1, 5000, 2**32 - 1])))


def write_forever():
    (channel, *_) = sockets()
    os.write(channel, struct.pack("!I", 60000))
    while True:
        os.write(channel, b"x")


def forge_a_reply():
    """Answer twice: now, and by returning."""
    frame = sys._getframe()
    while "channel" not in frame.f_locals:
        frame = frame.f_back
    from whet.rewards.wire import RESULTS, Reply

    frame.f_locals["channel"].send(Reply(RESULTS, results=[{"overall": 77.0}]))


def close_files():
    os.closerange(0, 256)


def close_and_open():
    os.closerange(3, 256)
    for _ in range(20):
        os.open("/dev/null", os.O_RDWR)


def stop_parent():
    os.kill(os.getppid(), signal.SIGSTOP)


def kill_parent():
    os.kill(os.getppid(), signal.SIGKILL)


def interrupt_parent():
    os.kill(os.getppid(), signal.SIGINT)


def kill_group():
    os.killpg(0, signal.SIGKILL)


def kill_self():
    os.kill(os.getpid(), random.choice([signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, 40, signal.SIGABRT]))


def ask_where():
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getppid(), signal.SIGUSR1)


def print_much():
    for _ in range(50):
        print("\ud800" + "x" * 100_000)
        os.write(2, b"\xff\x00" * 1000)


def read_stdin():
    assert sys.stdin.read() == ""


def keep_a_busy_thread():
    threading.Thread(target=lambda: [time.sleep(0) for _ in range(10**9)], daemon=True).start()


def trace_everything():
    sys.settrace(lambda *_: 1 / 0)
    gc.disable()


def raise_what_cannot_be_shown():
    class Nasty(BaseException):
        def __str__(self):
            raise KeyboardInterrupt

        __repr__ = __str__

    raise Nasty


class Number:
    def __float__(self):
        raise SystemExit(3)


class Unshowable:
    def __repr__(self):
        raise KeyboardInterrupt


class Liar(dict):
    def items(self):
        yield from ((f"k{i}", i) for i in range(10**5))


# What happens before the right score is returned.
ACTS = {
    name: act
    for name, act in list(globals().items())
    if callable(act) and name.islower() and name not in ("sockets", "soon")
}
ACTS |= {
    "exit": lambda: sys.exit("bye"),
    "end": lambda: os._exit(3),
    "abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
    "recurse": lambda: ACTS["recurse"](),
    "end soon": lambda: soon(lambda: os._exit(3)),
    "garbage soon": lambda: soon(write_garbage),
    "close soon": lambda: soon(close_files),
}
HANGING = {
    "sleep": lambda: time.sleep(600),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "stop soon": lambda: soon(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "close and sleep": lambda: (os.closerange(0, 256), time.sleep(600)),
    "print for ever": lambda: [print("x" * 10000) for _ in iter(int, 1)],
}
HANGING["write_forever"] = ACTS.pop("write_forever")
# Results that are no scores.
RESULTS = {
    "nan": lambda: math.nan,
    "infinite": lambda: {"overall": -math.inf},
    "too large": lambda: 1e39,
    "large": lambda: {"overall": -3e38},
    "many digits": lambda: 10**5000,
    "none": lambda: None,
    "text": lambda: "1.0",
    "generator": lambda: (x for x in [1.0]),
    "nested": lambda: {"overall": {"overall": 1.0}},
    "no overall": lambda: {"accuracy": 1.0},
    "many": lambda: {"overall": 1.0, **{f"k{i}": i for i in range(5000)}},
    "failed": lambda: {"overall": 1.0, random.choice(["failed", "raised", "died", "timeout", "bad_result"]): 5.0},
    "odd name": lambda: {"overall": 1.0, random.choice(["a\nb", "\0", "\ud800", "", "x" * 5000, "\x1b[2J"]): 5.0},
    "number": lambda: Number(),
    "unshowable": lambda: Unshowable(),
    "lie": lambda: Liar(overall="x"),
}


def score(text):
    kind, _, name = text.partition(":")
    if kind == "bad":
        return RESULTS[name]()
    if kind == "act":
        (ACTS | HANGING)[name]()
        return {"overall": Decimal(1), "accuracy": True, 3: 4.0}
    return float(text)


def one(reward_input):
    return score(reward_input["response"])


def many(reward_inputs):
    return [score(row["response"]) for row in reward_inputs]
