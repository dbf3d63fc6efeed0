"""What callers may ask of any engine: continue, stream, pause, abort, and refusals of what it would not follow."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from whet.errors import UserError
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.hf.engine import HFEngine
from whet.rollout.whole import Gate
from whet.types import Sample, Segment

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


def _answered(sample: Sample) -> Sample:
    return replace(sample, segments=[*sample.segments, Segment([7, 8, 9], by_model=False)])


@pytest.fixture
def hf(llama) -> HFEngine:
    return HFEngine(llama.model(), llama.tokenizer, frozenset({1}))


def test_engines_continue_a_sample_alike(llama, hf, prompts) -> None:
    native = llama.engine()
    ours = native.generate([_answered(s) for s in native.generate(prompts, GREEDY)], GREEDY)
    theirs = hf.generate([_answered(s) for s in hf.generate(prompts, GREEDY)], GREEDY)
    assert [s.ids for s in ours] == [s.ids for s in theirs]
    assert [len(s.segments) for s in theirs] == [3] * len(prompts)


def test_an_engine_of_batches_streams_whole_samples(hf, prompts) -> None:
    async def collect() -> list:
        return [piece async for piece in hf.stream(prompts[:2], replace(GREEDY, n=2))]

    pieces = asyncio.run(collect())
    samples = hf.generate(prompts[:2], replace(GREEDY, n=2))
    assert [(p.prompt, p.index, p.ids) for p in pieces] == [(i // 2, i % 2, s.ids) for i, s in enumerate(samples)]
    assert hf.failure is None


def test_an_engine_of_batches_aborts_rows_with_what_they_have(hf, prompts) -> None:
    params = SamplingParams(max_tokens=3000, ignore_eos=True)

    async def run() -> list[Sample]:
        task = asyncio.create_task(hf.sample(prompts[0], replace(params, n=2), 4))
        while hf._stop_early is None:
            await asyncio.sleep(0.01)
        hf.abort()
        return await asyncio.wait_for(task, 30)

    samples = asyncio.run(run())
    assert [s.finish for s in samples] == ["abort", "abort"]
    assert all(0 < len(s.ids) < 3000 for s in samples)


def test_a_cancelled_call_of_an_engine_of_batches_ends_soon(hf, prompts) -> None:
    async def run() -> None:
        task = asyncio.create_task(hf.sample(prompts[0], SamplingParams(max_tokens=100_000, ignore_eos=True)))
        while hf._stop_early is None:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)

    asyncio.run(run())
    assert hf.generate(prompts[:1], GREEDY)[0].finish == "length"


@pytest.mark.parametrize("params", [SamplingParams(top_logprobs=1), SamplingParams(stop_ids=(5,))])
def test_parameters_that_an_engine_would_not_follow_are_refused(hf, prompts, params) -> None:
    with pytest.raises(UserError, match="the engine hf"):
        hf.generate(prompts[:1], params)


def test_a_gate_lets_nobody_in_while_paused_and_waits_for_those_inside() -> None:
    gate, order = Gate(), []
    inside, leave = threading.Event(), threading.Event()

    def call() -> None:
        with gate.enter():
            inside.set()
            leave.wait(30)
            order.append("left")

    def pause() -> None:
        with gate.pause():
            order.append("paused")
            time.sleep(0.05)
            order.append("on again")

    first = threading.Thread(target=call)
    first.start()
    inside.wait(30)
    second = threading.Thread(target=pause)
    second.start()
    time.sleep(0.02)

    async def late() -> None:
        async with gate.enter_async():
            order.append("late")

    assert not gate.idle
    leave.set()
    asyncio.run(asyncio.wait_for(late(), 30))
    first.join(30)
    second.join(30)
    assert order == ["left", "paused", "on again", "late"]
    assert gate.idle
