"""Malformed messages to the watch of ranks, from strangers and from ranks: no honest rank notices any of it."""

import random
import socket
import struct

import pytest
from distributed.ranks import join, raw_join
from fuzz.cases import cases
from patience import PATIENCE, eventually

from whet.distributed.frames import BEAT_BYTES, HELLO_BYTES, Beat
from whet.distributed.watch import Watch

HONEST = 0
SIZE = 4000


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut, repeated, inserted or moved."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << rng.randrange(8)
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = rng.randbytes(rng.randint(1, 200))
            case 3:
                changed += changed[:at]
            case 4:
                changed[:0] = struct.pack("!Q", rng.choice([0, 2**31, 2**63, 2**64 - 1]))
            case 5:
                changed[at : at + 8] = b"\xff" * 8
    return bytes(changed)


def garbage(rng: random.Random) -> bytes:
    """What a stranger may send: text, nesting, other protocols, exact sizes, nothing."""
    return rng.choice(
        [
            lambda: b"[" * rng.randint(1, 70_000) + b"\n",
            lambda: b'{"a":' * rng.randint(1, 20_000) + b"\n",
            lambda: rng.randbytes(HELLO_BYTES),
            lambda: rng.randbytes(BEAT_BYTES),
            lambda: rng.randbytes(rng.randint(0, 5000)),
            lambda: b'{"secret": "%s", "rank": 0}\n' % rng.randbytes(4).hex().encode(),
            lambda: b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * rng.randint(1, 50),
            lambda: b"\x80\x04\x95" + rng.randbytes(100) + b".",
            lambda: b"\0" * rng.randint(1, 10_000),
            lambda: "\ud83d\ude00".encode("utf-16", "surrogatepass") * 500,
        ]
    )()


def send(line: socket.socket, data: bytes, rng: random.Random) -> None:
    """In one piece or several; then hang up, reset, or stay for a while."""
    try:
        for at in range(0, len(data), step := rng.choice([len(data) or 1, 1000, 7777])):
            line.sendall(data[at : at + step])
        if rng.random() < 0.3:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:  # shown out in the middle of it
        pass


def test_strangers_and_broken_ranks_disturb_nobody():
    rng = random.Random(13)
    watch = Watch("127.0.0.1", SIZE)
    honest, seal = join(watch, HONEST)
    open_lines: list[socket.socket] = []
    broken = 0
    try:
        for case in range(cases(120, 3000)):
            kind = rng.randrange(3)
            if kind == 0:  # a stranger
                line = socket.create_connection(watch.address, timeout=PATIENCE)
                send(line, garbage(rng), rng)
            elif kind == 1:  # nearly a rank
                line, hello, _ = raw_join(watch, rng.choice([HONEST, case + 1, -1, SIZE]))
                forged = mutated(hello, rng)
                send(line, forged if forged[:HELLO_BYTES] != hello else b"x" + forged, rng)
            else:  # a rank that breaks after some heartbeats
                line, tags = join(watch, case + 1)
                broken += 1
                for call in range(rng.randint(0, 3)):
                    line.sendall(tags.beat(Beat(call, 0.0, False)))
                send(line, mutated(tags.beat(Beat(9, 0.0, True)), rng) + b"\0" * BEAT_BYTES, rng)
            open_lines.append(line)
            while len(open_lines) > 30:
                open_lines.pop(rng.randrange(len(open_lines))).close()
            if case % 20 == 0:
                honest.sendall(seal.beat(Beat(case, 0.0, False)))
                assert eventually(lambda: watch.lives[HONEST].call == case), case  # noqa: B023
        honest.sendall(seal.beat(Beat(10**6, 0.5, True)))
        assert eventually(lambda: watch.lives[HONEST].call == 10**6)
        assert eventually(lambda: len(watch.dead()) == broken), "every broken rank is known as dead"
        assert HONEST not in watch.dead()
        assert len(watch.lives) == broken + 1, "nobody joined but ranks with the secret"
        last, _ = join(watch, SIZE - 1)
        last.close()
    finally:
        for line in [honest, *open_lines]:
            line.close()
        watch.close()


@pytest.mark.parametrize("seed", range(cases(20, 300)))
def test_mutated_heartbeats_are_read_or_refused(seed: int):
    """Each is either the heartbeat that was sent or an error of one kind."""
    from whet.distributed.frames import ForgedError, Seal, nonce, read_hello

    rng = random.Random(seed)
    for _ in range(50):
        first, second = nonce(), nonce()
        ours, theirs = Seal("secret", first, second), Seal("secret", first, second)
        hello = ours.hello(second, 1)
        forged = mutated(hello, rng)[:HELLO_BYTES].ljust(HELLO_BYTES, b"\0")
        if forged != hello:
            with pytest.raises(ForgedError):
                read_hello("secret", first, forged, 2)
        beat = ours.beat(Beat(3, 1.5, True))
        forged = mutated(beat, rng)[:BEAT_BYTES].ljust(BEAT_BYTES, b"\0")
        if forged == beat:
            assert theirs.read_beat(forged) == Beat(3, 1.5, True)
        else:
            with pytest.raises(ForgedError):
                theirs.read_beat(forged)
