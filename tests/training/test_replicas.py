"""Replicas of the engine: who gets which request, and what the loss of one costs."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from whet_process import SMALL

from whet.config import Config, with_values
from whet.config.examples import examples_folder
from whet.distributed.failure import failure_of
from whet.errors import UserError, WorkerLostError
from whet.rollout.engine import EngineGoneError, SamplingParams
from whet.training.replicas.engine import ReplicaEngine
from whet.training.replicas.worker import Answer, Orders
from whet.types import Prompt, Sample, Segment

REWARD = """
import time

def score(reward_input):
    time.sleep(0.2)
    return len(reward_input["response"]) / 10
"""
KILLING = float(os.environ.get("WHET_KILLING_SECONDS", "300"))


class Finished:
    """A call that was made at once."""

    def __init__(self, results: list[Any]) -> None:
        self.results = results

    def done(self) -> bool:
        return True

    def wait(self) -> list[Any]:
        return self.results


class Learn:
    """A learner that has sent versions."""

    size = 1

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.current = True

    def call(self, method: str, *args: Any) -> list[Any]:
        self.calls.append((method, *args))
        return [(None, []) if method == "invite_samplers" else self.current or method != "send_weights_again"]

    def start(self, method: str, *args: Any) -> Finished:
        return Finished(self.call(method, *args))


class Worker:
    """A replica that writes its own number for every token, when it is told to finish."""

    size = 1

    def __init__(self, number: int) -> None:
        self.number, self.version, self.dead, self.closed = number, -1, False, False
        self.waiting: list[Any] = []
        self.go = threading.Event()

    def call(self, method: str, *args: Any) -> list[Any]:
        if self.dead:
            raise WorkerLostError([0], f"replica {self.number} died")
        return [getattr(self, method)(*args)]

    def start(self, method: str, *args: Any) -> Finished:
        return Finished(self.call(method, *args))

    def look(self) -> None:
        if self.dead:
            raise WorkerLostError([0], f"replica {self.number} died")

    def close(self) -> None:
        self.closed = True

    def table(self) -> list[Any]:
        return []

    def open_link(self, *args: Any) -> None:
        pass

    def receive_weights(self, link: str, version: int, everything: bool) -> None:
        self.version = version

    def receive_weights_again(self, link: str, version: int) -> bool:
        self.version = version
        return True

    def exchange(self, orders: Orders, seconds: float) -> list[Answer]:
        self.waiting = [each for each in [*self.waiting, *orders.requests] if each.number not in orders.dropped]
        if not self.go.wait(0.01):
            return []
        done, self.waiting = self.waiting, []
        return [self._answer(each) for each in done]

    def _answer(self, request: Any) -> Answer:
        if request.start.ids == [13]:
            return Answer(request.number, failure=failure_of(UserError("prompt 13 is too long")))
        segment = Segment([self.number], True, [-1.0], self.version)
        return Answer(request.number, [Sample(request.start, [segment], "stop", i) for i in range(request.params.n)])


class Bench:
    """An engine of fake replicas, and everything that was opened for it."""

    def __init__(self, count: int, restarts: int) -> None:
        self.learn, self.opened, self.said = Learn(), list[Worker](), list[str]()
        config = with_values(Config(), {"worker.rollout.max_restarts": restarts})
        self.engine = ReplicaEngine(config, self.learn, self.open, count, self.said.append)
        self.opened.sort(key=lambda worker: worker.number)

    def open(self, number: int) -> Worker:
        self.opened.append(Worker(number))
        return self.opened[-1]


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Two replicas with weights of version 3; a marker gives the number of restarts."""
    made = Bench(2, getattr(request, "param", 10))
    made.engine.load_weights(lambda: iter(()), 3)
    yield made
    made.engine.close()


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.005)


def asked(worker: Worker) -> int:
    return sum(request.params.n for request in worker.waiting)


def prompt(*ids: int) -> Prompt:
    return Prompt("rows:1", list(ids), "")


def test_requests_go_to_the_replica_with_the_fewest_samples(bench: Bench):
    async def ask() -> list[list[Sample]]:
        calls = [bench.engine.sample(prompt(i), SamplingParams(n=n), i * 10) for i, n in enumerate([6, 2, 2, 1, 1])]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.to_thread(until, lambda: sum(map(asked, bench.opened)) == 12)
        assert [asked(worker) for worker in bench.opened] == [6, 6]
        for worker in bench.opened:
            worker.go.set()
        return await asyncio.gather(*tasks)

    drawn = asyncio.run(ask())
    assert [len(samples) for samples in drawn] == [6, 2, 2, 1, 1]
    assert [samples[0].ids for samples in drawn] == [[0], [1], [1], [1], [1]]
    assert {sample.segments[0].version for samples in drawn for sample in samples} == {3}


def test_what_a_lost_replica_had_is_sampled_by_another(bench: Bench):
    async def ask() -> list[Sample]:
        task = asyncio.ensure_future(bench.engine.sample(prompt(1), SamplingParams(), 5))
        await asyncio.to_thread(until, lambda: asked(bench.opened[0]) == 1)
        bench.opened[1].go.set()
        bench.opened[0].dead = True
        return await task

    (sample,) = asyncio.run(ask())
    assert sample.ids == [1]
    until(lambda: len(bench.engine.serving) == 2)  # another was opened, and has the weights of the others
    assert bench.opened[2].number == 0
    assert bench.opened[2].version == 3
    assert ("send_weights_again", "one", 3) in bench.learn.calls
    assert bench.opened[0].closed
    assert "replica 0 died" in bench.said[0]
    assert "restarts left: 9" in bench.said[0]


def test_a_new_replica_waits_for_weights_that_the_learner_no_longer_has(bench: Bench):
    bench.learn.current = False
    bench.opened[0].dead = True
    until(lambda: ("send_weights_again", "one", 3) in bench.learn.calls)
    assert [replica.number for replica in bench.engine.serving] == [1]
    bench.engine.load_weights(lambda: iter(()), 4)
    assert [replica.held for replica in bench.engine.serving] == [4, 4]
    assert bench.learn.calls[-1] == ("send_weights", "all", 4, True)  # one of them had none
    bench.engine.load_weights(lambda: iter(()), 5)
    assert bench.learn.calls[-1] == ("send_weights", "all", 5, False)


@pytest.mark.parametrize("bench", [0], indirect=True)
def test_when_none_is_left_the_engine_is_gone(bench: Bench):
    bench.opened[0].dead = True
    until(lambda: len(bench.engine.serving) == 1)
    assert "goes on without it" in bench.said[0]
    assert bench.engine.failure is None
    bench.opened[1].dead = True
    with pytest.raises(EngineGoneError, match=r"max_restarts is used up: replica 1 died"):
        bench.engine.generate([prompt(1)], SamplingParams())
    with pytest.raises(EngineGoneError):
        bench.engine.load_weights(lambda: iter(()), 4)


def test_a_sample_that_was_kept_is_continued_where_it_is(bench: Bench):
    for worker in bench.opened:
        worker.go.set()
    first = bench.engine.generate([prompt(1), prompt(2)], SamplingParams(keep=True), [0, 1])
    homes = [bench.engine._homes[sample_id].number for sample_id in (0, 1)]
    assert [sample.ids[0] for sample in first] == homes
    busy = 1 - homes[0]
    assert bench.engine.generate([prompt(3)], SamplingParams(), [0])[0].ids == [homes[0]] != [busy]


def test_a_refused_prompt_costs_nobody_else_anything(bench: Bench):
    for worker in bench.opened:
        worker.go.set()
    with pytest.raises(UserError, match="prompt 13 is too long"):
        bench.engine.generate([prompt(13)], SamplingParams())
    assert len(bench.engine.generate([prompt(1)], SamplingParams(n=2))) == 2
    assert not bench.said


def test_a_cancelled_call_leaves_its_replica(bench: Bench):
    async def ask() -> None:
        task = asyncio.ensure_future(bench.engine.sample(prompt(1), SamplingParams(), 5))
        await asyncio.to_thread(until, lambda: asked(bench.opened[0]) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(until, lambda: asked(bench.opened[0]) == 0)

    asyncio.run(ask())
    assert bench.engine.serving[0].load == 0


def test_replicas_leave_and_come_back(bench: Bench):
    bench.engine.resize(1)
    until(lambda: len(bench.engine.serving) == 1)
    assert bench.opened[1].closed
    assert not bench.said  # nothing was lost
    bench.engine.load_weights(lambda: iter(()), 4)
    bench.engine.resize(9)  # as many as there are devices
    until(lambda: len(bench.engine.serving) == 2)
    assert [replica.held for replica in bench.engine.serving] == [4, 4]
    assert [worker.number for worker in bench.opened] == [0, 1, 1]


@pytest.mark.slow
def test_any_process_may_be_killed(tmp_path: Path):
    """Kill a process of a run with two replicas every 20 s: it goes on, and no prompt is left out or taken twice."""
    pytest.importorskip("ray")
    folder = tmp_path / "run"
    reward = tmp_path / "reward.py"
    reward.write_text(REWARD)
    keys = (
        *SMALL,
        "trainer.n_gpus_per_node=3",
        "trainer.placement.rollout=2",
        "trainer.placement.learn=1",
        "trainer.max_staleness=2",
        "trainer.max_steps=100000",
        "trainer.save_freq=5",
        "trainer.save_limit=2",
        "trainer.val_freq=-1",
        "trainer.max_restarts=1000",
        "worker.rollout.max_restarts=1000",
        f"worker.reward.reward_function={reward}:score",
        f"trainer.save_checkpoint_path={folder}",
    )
    command = [sys.executable, "-m", "whet.cli", "train", f"config={examples_folder() / 'quickstart.yaml'}", *keys]
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        killed, trained, seen = _kill_workers(process, folder, random.Random(7))
        _wait_for_step(folder, trained[-1] + 5, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) in (0, 130), (tmp_path / "output.txt").read_text()
    finally:
        process.kill()
    print(killed, trained)
    records = [json.loads(gzip.decompress(path.read_bytes())) for path in sorted((folder / "schedule").iterdir())]
    taken = [record["ids"][0] for step in records for record in step]
    assert len(taken) == len(set(taken)) == len(records) * 4
    assert set(range(0, (len(records) - 3) * 16, 4)) <= set(taken)  # what was handed in by then was taken by now
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in seen)


def _kill_workers(
    process: subprocess.Popen[Any], folder: Path, chance: random.Random
) -> tuple[list[str], list[int], set[psutil.Process]]:
    """Kill one worker after the other; return their names, the step at each time, and every process that was seen."""
    killed, trained, seen = list[str](), list[int](), set[psutil.Process]()
    _wait_for_step(folder, 3, process)
    end = time.monotonic() + KILLING
    while time.monotonic() < end:
        time.sleep(20)
        assert process.poll() is None
        found = psutil.Process(process.pid).children(recursive=True)
        seen |= set(found)
        victim = chance.choice(_workers(found))
        killed.append(_name(victim))
        trained.append(_last_step(folder))
        victim.kill()
    return killed, trained, seen


def _workers(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that do the work of the run: ranks, replicas and reward workers."""
    return [each for each in processes if _name(each) in ("ray::Host", "reward")]


def _name(process: psutil.Process) -> str:
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    if words and words[0].startswith("ray::Host"):
        return "ray::Host"
    return "reward" if any("whet.rewards" in word for word in words) else ""


def _last_step(folder: Path) -> int:
    lines = (folder / "metrics.jsonl").read_text().splitlines() if (folder / "metrics.jsonl").exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def _wait_for_step(folder: Path, step: int, process: subprocess.Popen[Any]) -> None:
    end = time.monotonic() + 240
    while _last_step(folder) < step:
        assert process.poll() is None
        assert time.monotonic() < end, f"step {step} was not reached in time"
        time.sleep(0.2)
