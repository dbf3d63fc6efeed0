"""The connection between the caller and each worker, with workers that are plain processes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from distributed.processes import gone
from distributed.ranks import join, raw_join
from patience import PATIENCE, eventually

from whet.distributed.frames import Beat, Seal
from whet.distributed.watch import Heartbeat, Watch

WORKER = """
import subprocess, sys, time
from whet.distributed import heartbeat
from whet.distributed.frames import Beat
from whet.system import groups
if sys.argv[4] == "lead":
    groups.lead()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
print(child.pid, flush=True)
heartbeat.hold((sys.argv[1], int(sys.argv[2])), sys.argv[3], 3, lambda: Beat(1, 2.5, False))
time.sleep(1000)
"""


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch("127.0.0.1", 4)
    yield watch
    watch.close()


def start(watch: Watch, lead: str = "lead") -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WORKER, watch.address[0], str(watch.address[1]), watch.secret, lead]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_a_worker_is_heard_and_its_death_noticed(watch: Watch):
    worker = start(watch)
    child = int(worker.stdout.readline())
    try:
        assert eventually(lambda: 3 in watch.lives and watch.lives[3].idle == 2.5)
        assert watch.dead() == []
        worker.kill()
        assert eventually(lambda: watch.dead() == [3])
    finally:
        worker.kill()
        worker.wait()
        os.kill(child, 9)


def test_a_worker_ends_with_its_caller_and_takes_its_group_along():
    watch = Watch("127.0.0.1", 4)
    worker = start(watch)
    try:
        child = int(worker.stdout.readline())
        assert eventually(lambda: 3 in watch.lives)
        watch.close()
        assert worker.wait(PATIENCE) == -9
    finally:
        worker.kill()
    assert gone(worker.pid)
    assert gone(child)


def test_a_worker_that_leads_no_group_ends_alone():
    """This test's own group, its runner and its shell would be killed otherwise."""
    watch = Watch("127.0.0.1", 4)
    worker = start(watch, lead="no")
    try:
        child = int(worker.stdout.readline())
        assert eventually(lambda: 3 in watch.lives)
        watch.close()
        assert worker.wait(PATIENCE) == -9
        assert not gone(child, 0.3)
    finally:
        worker.kill()
        os.kill(child, 9)


@pytest.mark.parametrize("secret", ["", "0" * 64])
def test_a_worker_does_not_stay_with_a_stranger(secret: str, monkeypatch: pytest.MonkeyPatch):
    """Another process may have taken the caller's port."""
    from whet.distributed import heartbeat

    monkeypatch.setattr(heartbeat, "_JOIN_SECONDS", 0.5)
    stranger = Watch("127.0.0.1", 4)
    try:
        with pytest.raises(ConnectionError, match=r"rank 0 could not join its caller at 127\.0\.0\.1:"):
            heartbeat.hold(stranger.address, secret, 0, lambda: Beat(None, 0.0, False))
        assert stranger.lives == {}
    finally:
        stranger.close()


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 60_000 + b"\n",
        b"not json\n" * 100,
        b'{"secret": "guess", "rank": 0}\n' * 10,
        b"\0" * 72,
        b"x" * 70_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\nUser-Agent: curl\r\n\r\n",
    ],
)
def test_strangers_are_dropped_and_ranks_stay(watch: Watch, line: bytes):
    rank, seal = join(watch, 0)
    with rank, socket.create_connection(watch.address, timeout=PATIENCE) as stranger:
        try:
            stranger.sendall(line)
            while stranger.recv(100):
                pass
        except OSError:  # closed before it had read everything
            pass
        rank.sendall(seal.beat(Beat(7, 1.0, True)))
        assert eventually(lambda: watch.lives[0].call == 7)
    assert list(watch.lives) == [0]


def test_a_recorded_message_is_worth_nothing_a_second_time(watch: Watch):
    line, hello, seal = raw_join(watch, 1)
    beat = seal.beat(Beat(1, 0.0, False))
    line.sendall(hello + beat)
    assert eventually(lambda: 1 in watch.lives and watch.lives[1].call == 1)
    with socket.create_connection(watch.address, timeout=PATIENCE) as replayed:
        replayed.sendall(hello + beat)
        replayed.recv(32)
        assert replayed.recv(1) == b""
    assert watch.dead() == []
    line.sendall(beat)  # nor on the same connection
    assert eventually(lambda: watch.dead() == [1])
    line.close()


@pytest.mark.parametrize("rank", [4, -1, 2**62])
def test_ranks_that_are_not_awaited_are_dropped(watch: Watch, rank: int):
    line, hello, _ = raw_join(watch, rank)
    line.sendall(hello)
    assert line.recv(1) == b""
    assert watch.lives == {}


def test_a_rank_joins_once(watch: Watch):
    first, _ = join(watch, 2)
    line, hello, _ = raw_join(watch, 2)
    line.sendall(hello)
    assert line.recv(1) == b""
    assert watch.dead() == []
    first.close()


def test_garbage_after_the_secret_costs_its_rank_alone(watch: Watch):
    broken, _ = join(watch, 0)
    other, seal = join(watch, 1)
    broken.sendall(b"[" * 60_000)
    assert eventually(lambda: watch.dead() == [0])
    other.sendall(seal.beat(Beat(5, 0.0, False)))
    assert eventually(lambda: watch.lives[1].call == 5)


@pytest.mark.parametrize("beat", [Beat(-7, 0.0, False), Beat(1, float("nan"), False), Beat(1, -1.0, False)])
def test_heartbeats_that_no_worker_sends(watch: Watch, beat: Beat):
    line, seal = join(watch, 0)
    line.sendall(seal.beat(beat))
    assert eventually(lambda: watch.dead() == [0])


def test_many_silent_strangers_keep_nobody_out(watch: Watch):
    crowd = [socket.create_connection(watch.address, timeout=PATIENCE) for _ in range(200)]
    line, seal = join(watch, 0)
    line.sendall(seal.beat(Beat(3, 0.0, False)))
    assert eventually(lambda: watch.lives[0].call == 3)
    for each in [line, *crowd]:
        each.close()


def test_nobody_listens_once_all_are_there(watch: Watch):
    stranger = socket.create_connection(watch.address, timeout=PATIENCE)
    lines = [join(watch, rank)[0] for rank in range(4)]
    stranger.recv(32)
    assert stranger.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(watch.address, timeout=PATIENCE)
    assert watch.dead() == []
    for each in lines:
        each.close()


def test_strangers_have_little_time(watch: Watch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("whet.distributed.watch._STRANGER_SECONDS", 0.5)
    with socket.create_connection(watch.address, timeout=PATIENCE) as slow:
        slow.recv(32)
        end, dropped = time.monotonic() + PATIENCE, False
        while not dropped and time.monotonic() < end:  # a byte now and then
            try:
                slow.sendall(b"x")
                time.sleep(0.2)
            except OSError:
                dropped = True
    assert dropped
    assert watch.lives == {}


OUT_OF_DESCRIPTORS = """
import os, resource, socket, sys, time
sys.path.insert(0, sys.argv[1])
from distributed.ranks import join
from patience import eventually
from whet.distributed.frames import Beat
from whet.distributed.watch import Watch
watch = Watch("127.0.0.1", 3)
first, seal = join(watch, 0)
late = socket.socket()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
while True:
    try:
        held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        break
late.connect(watch.address)  # waits to be accepted, for which there is no descriptor
time.sleep(0.7)
before = time.process_time()
time.sleep(1.0)
assert time.process_time() - before < 0.5, "it spins"
first.sendall(seal.beat(Beat(9, 0.0, False)))
assert eventually(lambda: watch.lives[0].call == 9), "ranks are still heard"
for each in held:
    os.close(each)
second, _ = join(watch, 1)
assert watch.dead() == [] and sorted(watch.lives) == [0, 1]
print("fine")
"""


def test_out_of_descriptors_costs_no_rank():
    tests = os.path.dirname(os.path.dirname(__file__))
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_DESCRIPTORS, tests], capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert done.stdout == "fine\n", done.stderr


def test_silence_is_counted_and_ends_with_a_beat(watch: Watch):
    line, seal = join(watch, 0)
    with line:
        assert eventually(lambda: watch.silent(1.5) == [0])
        line.sendall(seal.beat(Beat(None, 0.0, False)))
        assert eventually(lambda: watch.silent(1.5) == [])


def test_the_secret_is_not_sent(watch: Watch):
    line, hello, seal = raw_join(watch, 0)
    assert watch.secret.encode() not in hello
    assert bytes.fromhex(watch.secret) not in hello
    assert isinstance(seal, Seal)
    line.close()


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
