"""Hostile reward functions and mutated replies: all other samples keep their own rewards, nothing outlives a worker."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from fuzz import hostile_reward
from fuzz.cases import cases
from patience import eventually

from whet.config.schema.reward import RewardConfig
from whet.rewards.capped_log import LIMIT
from whet.rewards.scorer import RewardScorer
from whet.rewards.wire import BAD, HELLO, RAISED, RESULTS, Reply, WireError, decode_reply, encode_reply
from whet.types import Prompt, Sample

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the functions look for sockets in /proc")
CALL = bytes(range(16))


def sample(text: str) -> Sample:
    return Sample.written(Prompt("rows.jsonl:0", [], ""), [], [], "stop", text=text)


def descendants(root: int) -> set[int]:
    """All processes below this one."""
    parents = {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if stat[0] != b"Z":
            parents[int(entry)] = int(stat[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def hostile_texts(seed: int, count: int, hanging: bool) -> list[str]:
    """Texts of samples, a few of them numbers, in which every hostile one comes up before any comes up again."""
    draw = random.Random(seed)
    kinds = [f"act:{name}" for name in (hostile_reward.ACTS | (hostile_reward.HANGING if hanging else {}))]
    kinds += [f"bad:{name}" for name in hostile_reward.RESULTS]
    hostile: list[str] = []
    while len(hostile) < count:
        hostile += draw.sample(kinds, len(kinds))
    texts = hostile[:count] + [f"{i}.5" for i in range(count)]
    draw.shuffle(texts)
    return texts


@pytest.mark.parametrize("function", ["one", "many"])
def test_innocent_samples_keep_their_own_rewards(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hanging = cases(0, 1) == 1
    texts = hostile_texts(3, cases(45, 500) if function == "one" else cases(8, 300), hanging)
    before = descendants(os.getpid())
    config = RewardConfig(num_cpus=2, timeout=5.0 if hanging else 20.0, fallback=-1.0)
    log = tmp_path / "reward.log"
    warnings: list[str] = []
    with RewardScorer(f"{hostile_reward.__file__}:{function}", config, warn=warnings.append, output=log) as scorer:
        samples = [sample(text) for text in texts]
        counts = scorer.score(samples)
        innocent = [each for each in samples if ":" not in each.text]
        assert {each.text: each.reward for each in innocent} == {each.text: float(each.text) for each in innocent}
        assert not [(each.text, each.failure) for each in innocent if each.failure]
        wrong = [each for each in samples if each.text.startswith("bad:")]
        assert {(each.text, each.failure) for each in wrong if each.failure not in ("bad result", "raised")} == set()
        assert all(each.reward in (1.0, -1.0, 77.0) for each in samples if each.text.startswith("act:"))
        assert counts["reward/failed"] == sum(each.failure is not None for each in samples)
    # Processes whose keeper was killed have been sent a signal, no more.
    assert eventually(lambda: not descendants(os.getpid()) - before)
    assert log.stat().st_size <= LIMIT


def test_mutated_replies_are_refused_or_read():
    draw = random.Random(2)
    replies = [
        Reply(HELLO, batch=True),
        Reply(RAISED, "Traceback\n  ValueError: \ud800", "ValueError at x.py:3"),
        Reply(BAD, "it returned None"),
        Reply(RESULTS, results=[{"overall": 1.5, "accuracy": 0.0}, "bad", {"overall": -2.0}], flags=3),
    ]
    refused = 0
    for _ in range(cases(2000, 200_000)):
        data = bytearray(encode_reply(draw.choice(replies), CALL, 1234)[4:])
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(data) + 1)
            match draw.randrange(4):
                case 0 if at < len(data):
                    data[at] = draw.randrange(256)
                case 1:
                    del data[at:]
                case 2:
                    data[at:at] = draw.randbytes(draw.randrange(1, 9))
                case 3 if at < len(data):
                    data[at : at + 4] = draw.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"])
        try:
            reply, pid = decode_reply(bytes(data), CALL, 1234)
        except WireError:
            refused += 1
            continue
        assert pid == 1234
        assert reply.kind in range(5)
    assert refused > 0


def test_replies_to_other_calls_and_of_other_processes_are_refused():
    data = encode_reply(Reply(RESULTS, results=[{"overall": 1.0}]), CALL, 1234)[4:]
    assert decode_reply(data, CALL, 1234)[0].results == [{"overall": 1.0}]
    with pytest.raises(WireError, match="another call"):
        decode_reply(data, CALL[::-1], 1234)
    with pytest.raises(WireError, match="process 1234"):
        decode_reply(data, CALL, 4321)
