"""The collector: groups come out scored, in order or as they finish, and no prompt is lost or repeated by anything."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from whet.rollout.batch_engine import BatchEngine
from whet.rollout.collector import Collector
from whet.rollout.engine import SamplingParams
from whet.rollout.single_turn import SingleTurn
from whet.types import Prompt, Sample

N = 2  # samples of a prompt


def prompts(count: int) -> list[Prompt]:
    return [Prompt(f"row {i}", [i], str(i)) for i in range(count)]


def ids(count: int, first: int = 0) -> list[range]:
    return [range(first + i * N, first + (i + 1) * N) for i in range(count)]


def samples_of(prompt: Prompt, its: range) -> list[Sample]:
    return [Sample.written(prompt, [id_], [0.0], "stop", index=i) for i, id_ in enumerate(its)]


async def rollout(prompt: Prompt, its: range) -> list[Sample]:
    await asyncio.sleep(0)
    return samples_of(prompt, its)


async def score(samples: list[Sample]) -> None:
    for sample in samples:
        sample.scores = {"overall": float(sample.ids[0])}


def hand_in(collector: Collector, count: int) -> None:
    collector.submit(range(count), prompts(count), ids(count))


def test_ordered_groups_are_those_handed_in_with_their_rows_ids_and_scores() -> None:
    with Collector(rollout, score, limit=3) as collector:
        hand_in(collector, 10)
        told: list[int] = []
        groups = collector.take(10, ordered=True, progress=told.append)
        assert collector.pending == []
    assert [group.row for group in groups] == list(range(10))
    assert [[s.ids[0] for s in group.samples] for group in groups] == [list(its) for its in ids(10)]
    assert [[s.group for s in group.samples] for group in groups] == [[its.start] * N for its in ids(10)]
    assert all(sample.reward == sample.ids[0] for group in groups for sample in group.samples)
    assert sum(told) == 10 * N


def test_groups_come_out_as_they_finish_and_only_so_many_are_in_flight() -> None:
    flying, most = 0, 0

    async def slow_first(prompt: Prompt, its: range) -> list[Sample]:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.2 if prompt.ids == [0] else 0.001)
        flying -= 1
        return samples_of(prompt, its)

    with Collector(slow_first, score, limit=2) as collector:
        hand_in(collector, 8)
        assert [group.row for group in collector.take(7)] == list(range(1, 8))
        assert [ticket.row for ticket in collector.pending] == [0]
        assert [group.row for group in collector.take(1)] == [0]
    assert most == 2


def test_scoring_begins_while_others_are_sampled() -> None:
    scored_first = threading.Event()

    async def waits_for_a_score(prompt: Prompt, its: range) -> list[Sample]:
        if prompt.ids == [1]:
            assert await asyncio.to_thread(scored_first.wait, 10)
        return samples_of(prompt, its)

    async def tells(samples: list[Sample]) -> None:
        await score(samples)
        scored_first.set()

    with Collector(waits_for_a_score, tells) as collector:
        hand_in(collector, 2)
        collector.wait_sampled()
        assert len(collector.take(2, ordered=True)) == 2


def test_a_function_of_whole_batches_is_called_once_for_what_was_handed_in() -> None:
    calls: list[list[int]] = []

    async def whole(samples: list[Sample]) -> None:
        calls.append([sample.ids[0] for sample in samples])
        await score(samples)

    with Collector(rollout, whole, limit=2, together=True) as collector:
        hand_in(collector, 5)
        assert len(collector.take(5)) == 5
    assert calls == [list(range(10))]


@pytest.mark.parametrize("where", ["rollout", "score", "batch"])
def test_an_error_is_raised_and_everything_can_go_on(where: str) -> None:
    broken = True

    async def rolls(prompt: Prompt, its: range) -> list[Sample]:
        if where == "rollout" and broken and prompt.ids == [3]:
            raise OSError("the engine is gone")
        return await rollout(prompt, its)

    async def scores(samples: list[Sample]) -> None:
        await asyncio.sleep(0)
        if where != "rollout" and broken and any(sample.ids == [7] for sample in samples):
            raise OSError("the engine is gone")
        await score(samples)

    with Collector(rolls, scores, together=where == "batch") as collector:
        hand_in(collector, 6)
        for _ in range(2):  # until somebody says to go on
            with pytest.raises(OSError, match="engine is gone"):
                collector.take(6, ordered=True)
        assert [ticket.row for ticket in collector.pending] == list(range(6))
        broken = False
        collector.resume()
        groups = collector.take(6, ordered=True, timeout=20)
    assert [sample.reward for group in groups for sample in group.samples] == list(range(12))


@pytest.mark.parametrize("exits", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_would_end_the_thread_is_an_error(exits: type[BaseException]) -> None:
    async def leaves(samples: list[Sample]) -> None:
        raise exits

    with Collector(rollout, leaves) as collector:
        hand_in(collector, 2)
        with pytest.raises(RuntimeError, match="scorer"):
            collector.take(2, timeout=20)
        assert len(collector.pending) == 2


def test_a_timeout_takes_nothing_and_hanging_groups_are_cancelled() -> None:
    hangs = True

    async def hanging(prompt: Prompt, its: range) -> list[Sample]:
        if hangs and prompt.ids[0] % 2:
            await asyncio.Event().wait()
        return await rollout(prompt, its)

    with Collector(hanging, score) as collector:
        hand_in(collector, 6)
        with pytest.raises(TimeoutError):
            collector.take(4, timeout=0.2)
        assert len(collector.pending) == 6
        assert sorted(group.row for group in collector.ready) == [0, 2, 4]
        collector.cancel(timeout=20)
        assert collector.in_flight == 0
        hangs = False
        collector.resume()
        assert sorted(group.row for group in collector.take(6, timeout=20)) == list(range(6))


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="limit"):
        Collector(rollout, score, limit=0)
    collector = Collector(rollout, score)
    with pytest.raises(ValueError, match="pending"):
        collector.take(1)
    collector.close()
    collector.close()
    with pytest.raises(RuntimeError, match="closed"):
        hand_in(collector, 1)


class Slow(BatchEngine):
    """Samples one batch at a time; notes what was in each."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[int]] = []
        self.fails = False

    def generate(self, prompts, params, sample_ids=None, progress=None):  # type: ignore[no-untyped-def]
        with self.turn:
            self.batches.append(list(sample_ids))
            if self.fails:
                raise OSError("no device")
            time.sleep(0.01)
            return [
                Sample.written(prompt, [id_ + i], [0.0], "stop", index=i)
                for prompt, id_ in zip(prompts, sample_ids, strict=True)
                for i in range(params.n)
            ]


def no_text(samples: list[Sample]) -> None:
    return None


def test_an_engine_of_batches_samples_all_that_wait_at_once() -> None:
    engine = Slow()
    with Collector(SingleTurn(engine, SamplingParams(n=N), no_text), score) as collector:
        hand_in(collector, 5)
        groups = collector.take(5, ordered=True, timeout=20)
        assert engine.batches == [[0, 2, 4, 6, 8]]
        assert [[s.ids[0] for s in group.samples] for group in groups] == [list(its) for its in ids(5)]
        engine.fails = True
        hand_in(collector, 2)
        with pytest.raises(OSError, match="no device"):
            collector.take(2, timeout=20)
        engine.fails = False
        collector.resume()
        assert len(collector.take(2, timeout=20)) == 2


def unreliable(draw: random.Random, work: Callable[..., object], chance: float):  # type: ignore[no-untyped-def]
    """The same work, which sometimes takes a while, raises, or hangs until it is cancelled."""

    async def does(*arguments):  # type: ignore[no-untyped-def]
        await asyncio.sleep(draw.choice([0, 0, 0.001, 0.003]))
        luck = draw.random()
        if luck < chance:
            raise OSError("bad luck")
        if luck < 1.5 * chance:
            await asyncio.Event().wait()
        return await work(*arguments)  # type: ignore[misc]

    return does


@pytest.mark.parametrize("seed", range(12))
def test_whatever_fails_hangs_or_is_cancelled_no_prompt_is_lost_or_repeated(seed: int) -> None:
    draw = random.Random(seed)
    total, engine = 60, Slow()
    single = SingleTurn(engine, SamplingParams(n=N), no_text)
    rolls = unreliable(draw, single if seed % 2 else rollout, 0.03)
    collector = Collector(rolls, unreliable(draw, score, 0.03), draw.choice([None, 1, 7]), together=draw.random() < 0.3)
    out: list[int] = []
    handed_in, end = 0, time.monotonic() + 60
    while len(out) < total:
        assert time.monotonic() < end, "deadlock"
        if handed_in < total and draw.random() < 0.6:
            count = draw.randint(1, min(9, total - handed_in))
            rows = range(handed_in, handed_in + count)
            collector.submit(rows, prompts(count), ids(count, first=handed_in * N))
            handed_in += count
        if draw.random() < 0.2:
            collector.cancel(timeout=20)
        if draw.random() < 0.5:
            collector.resume()
        waiting = len(collector.pending)
        assert waiting + len(out) == handed_in
        if waiting:
            try:
                groups = collector.take(draw.randint(1, waiting), draw.random() < 0.5, timeout=0.02)
            except (OSError, TimeoutError):
                groups = []
            if draw.random() < 0.05:
                collector.cancel(timeout=20)
                collector.resume()
            for group in groups:
                out.append(group.row)
                assert [s.reward for s in group.samples] == [group.row * N, group.row * N + 1]
        assert Counter([*out, *(ticket.row for ticket in collector.pending)]) == Counter(range(handed_in))
    collector.close()
    assert sorted(out) == list(range(total))
    assert collector.pending == []
    assert not any(thread.name == "whet-collector" and thread.is_alive() for thread in threading.enumerate())
