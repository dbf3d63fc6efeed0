"""The connection between the caller and each worker, with workers that are plain processes."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from distributed.processes import gone

from whet.distributed.heartbeat import Heartbeat, Watch

WORKER = """
import os, sys, time
from whet.distributed import heartbeat
heartbeat.hold((sys.argv[1], int(sys.argv[2])), sys.argv[3], 3, lambda: {"call": 1, "idle": 2.5, "waiting": False})
time.sleep(1000)
"""


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch("127.0.0.1")
    yield watch
    watch.close()


def becomes_true(happened: Callable[[], bool], seconds: float = 15.0) -> bool:
    end = time.monotonic() + seconds
    while not (result := happened()) and time.monotonic() < end:
        time.sleep(0.05)
    return result


def start(watch: Watch) -> subprocess.Popen:
    arguments = [sys.executable, "-c", WORKER, watch.address[0], str(watch.address[1]), watch.secret]
    return subprocess.Popen(arguments, start_new_session=True)


def test_a_worker_is_heard_and_its_death_noticed(watch: Watch):
    worker = start(watch)
    try:
        assert becomes_true(lambda: 3 in watch.lives and watch.lives[3].idle == 2.5)
        assert watch.dead() == []
        worker.kill()
        assert becomes_true(lambda: watch.dead() == [3], 2.0)
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_ends_with_its_caller():
    watch = Watch("127.0.0.1")
    worker = start(watch)
    try:
        assert becomes_true(lambda: 3 in watch.lives)
        watch.close()
        assert worker.wait(5) == -9
    finally:
        worker.kill()
    assert gone(worker.pid)


@pytest.mark.parametrize(
    "line", [b"not json\n", b'{"secret": "guess", "rank": 0}\n', b'{"rank": 0}\n', b"[]\n", b"x" * 70000]
)
def test_strangers_are_shown_out(watch: Watch, line: bytes):
    with socket.create_connection(watch.address, timeout=5) as stranger:
        stranger.sendall(line)
        with contextlib.suppress(ConnectionResetError):  # closed before it had read everything
            assert stranger.recv(1) == b""
    assert watch.lives == {}


def test_silence_is_counted_and_ends_with_a_beat(watch: Watch):
    with socket.create_connection(watch.address) as line:
        line.sendall(json.dumps({"secret": watch.secret, "rank": 0}).encode() + b"\n")
        assert becomes_true(lambda: watch.silent(1.5) == [0], 6.0)
        line.sendall(b'{"call": null, "idle": 0, "waiting": false}\n')
        assert becomes_true(lambda: watch.silent(1.5) == [], 2.0)


def test_who_is_stuck(watch: Watch):
    idle, waits, busy = Heartbeat(call=7, idle=60), Heartbeat(call=7, idle=60, waiting=True), Heartbeat(call=7, idle=1)
    watch.lives = {0: waits, 1: idle, 2: waits}
    assert watch.stuck(7, [0, 1, 2], 45) == [1]
    watch.lives = {0: waits, 1: waits, 2: waits}  # a collective that nobody else will join
    assert watch.stuck(7, [0, 1, 2], 45) == [0, 1, 2]
    watch.lives = {0: waits, 1: busy, 2: waits}  # they wait for one that works
    assert watch.stuck(7, [0, 1, 2], 45) == []
    watch.lives = {0: idle, 1: busy, 2: busy}
    assert watch.stuck(7, [1, 2], 45) == []  # done already
    assert watch.stuck(8, [0, 1, 2], 45) == []  # of an earlier call
