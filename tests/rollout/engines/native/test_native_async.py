"""Requests join and leave at any moment, from any thread, and each is answered as if it were alone."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest
import torch

from whet.errors import UserError
from whet.rollout.engine import SamplingParams
from whet.types import Prompt

ENDS = tuple(range(0, 320, 16))
DEADLINE = 30.0  # a call that hangs fails here and not at the end of the suite


def _ids(samples) -> list[list[int]]:
    return [s.ids for s in samples]


def _assert_idle(engine) -> None:
    """Nothing is left in the engine, and its thread goes away."""
    for _ in range(200):
        if engine._driver is None:
            break
        time.sleep(0.01)
    assert engine._driver is None
    assert not engine._scheduler.running
    assert not engine._scheduler.waiting


async def _within(awaitable):
    return await asyncio.wait_for(awaitable, DEADLINE)


def test_calls_join_a_batch_that_another_thread_is_generating(llama, prompts) -> None:
    solo = llama.engine(torch.float64, ends=ENDS)
    batch_params = SamplingParams(n=2, max_tokens=40, seed=1)
    calls = [(prompts[i % 6], SamplingParams(n=1 + i % 3, max_tokens=3 + i, seed=2), 10 * i) for i in range(20)]
    expected_batch = _ids(solo.generate(prompts, batch_params))
    expected_calls = [_ids(solo.generate([p], params, [i])) for p, params, i in calls]

    engine = llama.engine(torch.float64, ends=ENDS, slots=7)
    batches: list[list[list[int]]] = []
    thread = threading.Thread(
        target=lambda: batches.extend(_ids(engine.generate(prompts, batch_params)) for _ in range(3))
    )

    async def call(prompt: Prompt, params: SamplingParams, sample_id: int, delay: float):
        await asyncio.sleep(delay)
        return _ids(await engine.sample(prompt, params, sample_id))

    async def all_calls():
        delays = random.Random(0)
        return await _within(asyncio.gather(*(call(*c, delays.uniform(0, 0.5)) for c in calls)))

    thread.start()
    drawn = asyncio.run(all_calls())
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert drawn == expected_calls
    assert batches == [expected_batch] * 3
    _assert_idle(engine)


def test_short_calls_beside_short_batches_all_come_back(llama, prompts) -> None:
    """Work of a token or two, so that the two stepping threads pass the last request to each other all the time."""
    engine = llama.engine(slots=2)
    params = SamplingParams(max_tokens=1)
    over = threading.Event()

    def batches() -> None:
        while not over.is_set():
            engine.generate(prompts[:1], params)

    async def calls() -> None:
        for i in range(150):
            await _within(engine.sample(prompts[2], params, i))

    thread = threading.Thread(target=batches)
    thread.start()
    try:
        asyncio.run(calls())
    finally:
        over.set()
        thread.join(DEADLINE)
    assert not thread.is_alive()
    _assert_idle(engine)


def test_a_cancelled_call_frees_its_slot_and_the_others_never_know(llama, prompts) -> None:
    solo = llama.engine(torch.float64, ends=())
    params = SamplingParams(n=2, max_tokens=30, seed=3)
    expected = [_ids(solo.generate([p], params, [i])) for i, p in enumerate(prompts)]
    engine = llama.engine(torch.float64, ends=(), slots=4)

    async def calls():
        endless = SamplingParams(n=3, max_tokens=1_000_000)
        doomed = [asyncio.create_task(engine.sample(prompts[0], endless, 500 + i)) for i in range(2)]
        others = [asyncio.create_task(engine.sample(p, params, i)) for i, p in enumerate(prompts)]
        await asyncio.sleep(0.1)
        for task in doomed:
            task.cancel()
        drawn = await _within(asyncio.gather(*others))
        assert [t.cancelled() for t in doomed] == [True, True]
        return [_ids(samples) for samples in drawn]

    assert asyncio.run(calls()) == expected
    _assert_idle(engine)


def test_a_call_may_outlive_its_event_loop(llama, prompts) -> None:
    """The loop closes right after the cancellation, before the engine has seen it."""
    engine = llama.engine(slots=2)
    params = SamplingParams(n=3, max_tokens=1_000_000, ignore_eos=True)

    async def impatient() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.sample(prompts[0], params), 0.05)

    for _ in range(5):
        asyncio.run(impatient())
    _assert_idle(engine)
    assert len(engine.generate(prompts, SamplingParams(max_tokens=3))) == len(prompts)


def test_a_prompt_with_a_foreign_token_is_refused_and_costs_no_one_else(llama, prompts) -> None:
    engine = llama.engine()

    async def calls():
        good = asyncio.create_task(engine.sample(prompts[0], SamplingParams(max_tokens=20)))
        for ids in ([3, 320], [-1], []):
            with pytest.raises(UserError, match=r"bad row: .* 0 to 319"):
                await _within(engine.sample(Prompt("bad row", ids, ""), SamplingParams()))
        return await _within(good)

    assert len(asyncio.run(calls())) == 1
    with pytest.raises(UserError, match="bad row"):
        engine.generate([prompts[0], Prompt("bad row", [320], "")], SamplingParams(max_tokens=4))
    engine.step()
    _assert_idle(engine)


class _BrokenError(Exception):
    pass


def test_an_error_in_a_step_reaches_everyone_who_waits_and_the_engine_works_afterwards(llama, prompts) -> None:
    engine = llama.engine()
    params = SamplingParams(n=2, max_tokens=1_000_000, ignore_eos=True)
    seen: list[BaseException] = []

    def batch() -> None:
        try:
            engine.generate(prompts, params)
        except _BrokenError as error:
            seen.append(error)

    def break_down(*_: object) -> None:
        raise _BrokenError("the model fell over")

    async def calls():
        thread = threading.Thread(target=batch)
        thread.start()
        tasks = [asyncio.create_task(engine.sample(p, params)) for p in prompts]
        await asyncio.sleep(0.1)
        hook = engine._runner.model.base_model.register_forward_pre_hook(break_down)
        outcomes = await _within(asyncio.gather(*tasks, return_exceptions=True))
        await asyncio.to_thread(thread.join, DEADLINE)
        hook.remove()
        assert not thread.is_alive()
        return outcomes

    outcomes = asyncio.run(calls())
    assert [type(o) for o in outcomes] == [_BrokenError] * len(prompts)
    assert [type(e) for e in seen] == [_BrokenError]
    _assert_idle(engine)
    reference = llama.engine().generate(prompts, SamplingParams(max_tokens=8))
    assert _ids(engine.generate(prompts, SamplingParams(max_tokens=8))) == _ids(reference)


def test_ctrl_c_between_steps_leaves_nothing_behind(llama, prompts) -> None:
    engine = llama.engine(torch.float64, ends=ENDS, slots=3)
    params = SamplingParams(n=3, max_tokens=20)
    expected = _ids(engine.generate(prompts, params))

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(prompts, params, progress=interrupt)
    engine.release()
    assert engine._runner.cache.data.numel() == 0
    _assert_idle(engine)
    assert not engine.step()
    assert _ids(engine.generate(prompts, params)) == expected


def test_ctrl_c_inside_a_step_ends_the_other_calls_with_an_error(llama, prompts) -> None:
    """A step that was torn in the middle cannot go on: everyone hears of it, and the next call starts clean."""
    engine = llama.engine(slots=3)
    expected = _ids(engine.generate(prompts, SamplingParams(max_tokens=8)))
    other = engine.submit(prompts[0], SamplingParams(max_tokens=50, ignore_eos=True))
    passes: list[int] = []

    def press_ctrl_c(*_: object) -> None:
        passes.append(1)
        if len(passes) == 4:
            raise KeyboardInterrupt

    hook = engine._runner.model.base_model.layers[1].register_forward_pre_hook(press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        engine.generate(prompts, SamplingParams(n=2, max_tokens=8))
    hook.remove()
    assert other.unfinished == 0
    with pytest.raises(RuntimeError, match="interrupted"):
        other.raise_error()
    assert not engine.step()
    assert _ids(engine.generate(prompts, SamplingParams(max_tokens=8))) == expected


def test_progress_counts_every_sample_once_in_the_callers_thread(llama, prompts) -> None:
    engine = llama.engine(ends=ENDS, slots=4)
    counts: list[int] = []
    threads = set()

    def progress(ended: int) -> None:
        counts.append(ended)
        threads.add(threading.get_ident())

    async def beside() -> None:
        call = asyncio.create_task(engine.sample(prompts[0], SamplingParams(max_tokens=60, ignore_eos=True)))
        await asyncio.to_thread(engine.generate, prompts, SamplingParams(n=3, max_tokens=12), None, progress)
        await _within(call)

    asyncio.run(beside())
    assert sum(counts) == 3 * len(prompts)
    assert min(counts) >= 1
    assert len(threads) == 1


def test_as_many_ids_as_prompts_or_nothing_is_queued(llama, prompts) -> None:
    engine = llama.engine()
    with pytest.raises(ValueError, match="zip"):
        engine.generate(prompts, SamplingParams(), sample_ids=[0, 1])
    engine.step()
    _assert_idle(engine)


def test_calls_that_begin_together_are_decoded_as_one_batch(llama, prompts) -> None:
    """So synchronous training, which asks for each prompt by itself, has the bits of `generate`."""
    params = SamplingParams(n=2, max_tokens=12, seed=4)
    expected = llama.engine(torch.float32, ends=ENDS, slots=5).generate(prompts, params)
    engine, read = llama.engine(torch.float32, ends=ENDS, slots=5), []
    prefill = engine._runner.prefill

    def noted(requests) -> None:
        read.append(len(requests))
        prefill(requests)

    engine._runner.prefill = noted

    async def ask():
        tasks = [engine.sample(prompt, params, i * 2) for i, prompt in enumerate(prompts)]
        return await _within(asyncio.gather(*tasks))

    for _ in range(5):
        found = [sample for samples in asyncio.run(ask()) for sample in samples]
        assert [s.ids for s in found] == [s.ids for s in expected]
        assert [s.log_probs for s in found] == [s.log_probs for s in expected]  # to the last bit
    assert read == read[: len(read) // 5] * 5
    _assert_idle(engine)


def test_a_call_cancelled_before_it_began_leaves_nothing(llama, prompts) -> None:
    engine = llama.engine(torch.float32, ends=ENDS)

    async def cancel_at_once() -> None:
        call = asyncio.create_task(engine.sample(prompts[0], SamplingParams(max_tokens=60, ignore_eos=True)))
        asyncio.get_running_loop().call_soon(call.cancel)
        with pytest.raises(asyncio.CancelledError):
            await _within(call)
        assert len(await _within(engine.sample(prompts[1], SamplingParams(max_tokens=3)))) == 1

    asyncio.run(cancel_at_once())
    _assert_idle(engine)
