"""Samples that are continued: after a tool's answer, after an abort, and across versions of the weights."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest
import torch
from patience import PATIENCE

from whet.errors import UserError
from whet.rollout.engine import SamplingParams
from whet.types import Sample, Segment

KINDS = ("llama", "qwen3", "mistral")  # the last with a window that is shorter than the prompts
TURN = SamplingParams(max_tokens=9, seed=3, ignore_eos=True)
TOOL = [7, 300, 8, 9, 41]
DEADLINE = PATIENCE


def _answered(sample: Sample, ids: list[int] = TOOL) -> Sample:
    """The sample with a tool's answer behind it."""
    return replace(sample, segments=[*sample.segments, Segment(list(ids), by_model=False)])


def _written(sample: Sample) -> list[tuple[list[int], bool, int]]:
    return [(segment.ids, segment.by_model, segment.version) for segment in sample.segments]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [False, True])
def test_every_token_of_every_turn_has_the_log_prob_of_one_full_pass(tiny, prompts, full_log_probs, kind, keep) -> None:
    engine = tiny(kind).engine()
    params = replace(TURN, keep=keep, temperature=0.8)
    ids = [10 * i for i in range(len(prompts))]
    samples = engine.generate(prompts, params, ids)
    for _ in range(2):
        samples = engine.generate([_answered(sample) for sample in samples], params, ids)
    reference = tiny(kind).reference()
    for sample, prompt in zip(samples, prompts):
        assert [s.by_model for s in sample.segments] == [True, False, True, False, True]
        assert sample.turns == 3
        assert sample.prompt is prompt
        mask = torch.tensor(sample.mask, dtype=torch.bool)
        expected = torch.tensor(full_log_probs(reference, sample, 0.8))
        torch.testing.assert_close(torch.tensor(sample.log_probs)[mask], expected[mask], atol=1e-4, rtol=0)
        assert not torch.tensor(sample.log_probs)[~mask].any()


def test_a_kept_sample_is_not_computed_again(llama, prompts) -> None:
    engine, seen = llama.engine(torch.float64), []
    prompt, params = prompts[1], replace(TURN, keep=True)
    engine._runner.model.get_input_embeddings().register_forward_pre_hook(
        lambda _, args: seen.append(args[0].shape[-1])
    )
    first = engine.generate([prompt], params, [5])[0]
    assert engine.capabilities.prefix_reuse
    seen.clear()
    again = engine.generate([_answered(first)], params, [5])[0]
    assert max(seen) == len(TOOL) + 1  # and the last token of the turn before, which was drawn and not read

    seen.clear()
    engine.release()  # gives the kept ones back
    assert engine.generate([_answered(first)], params, [5])[0].ids == again.ids
    assert max(seen) == len(prompt.ids) + len(first.ids) + len(TOOL)


def test_what_was_kept_serves_the_same_tokens_and_weights_only(llama, prompts) -> None:
    engine, params = llama.engine(torch.float64), replace(TURN, keep=True)
    first = engine.generate([prompts[3]], params, [5])[0]
    changed = replace(first, segments=[replace(first.segments[0], ids=[9, *first.ids[1:]])])
    expected = llama.engine(torch.float64).generate([_answered(changed)], TURN, [5])[0]
    assert engine.generate([_answered(changed)], TURN, [5])[0].ids == expected.ids

    first = engine.generate([prompts[3]], params, [5])[0]
    with torch.no_grad():
        engine._runner.model.get_input_embeddings().weight.mul_(1.5)
    engine.load_weights(lambda: iter(()), 1)
    fresh = llama.engine(torch.float64)
    with torch.no_grad():
        fresh._runner.model.get_input_embeddings().weight.mul_(1.5)
    assert engine.generate([_answered(first)], TURN, [5])[0].ids == fresh.generate([_answered(first)], TURN, [5])[0].ids


def test_kept_samples_are_bounded_by_the_slots(llama, prompts) -> None:
    engine = llama.engine(slots=4)
    engine.generate(prompts, replace(TURN, n=3, keep=True))
    assert len(engine._kept) == 4


def test_n_continuations_of_one_sample_differ_and_keep_what_it_had(llama, prompts) -> None:
    engine = llama.engine(torch.float64)
    first = engine.generate([prompts[0]], TURN, [5])[0]
    before = _written(first)
    branches = engine.generate([_answered(first)], replace(TURN, n=3), [5])
    assert len({tuple(branch.ids) for branch in branches}) == 3
    assert all(_written(branch)[:1] == before for branch in branches)
    assert [branch.index for branch in branches] == [0, 1, 2]
    assert _written(first) == before  # the given one is as it was


@pytest.mark.parametrize("keep", [False, True])
def test_an_aborted_sample_becomes_the_one_that_it_would_have_been(llama, prompts, keep) -> None:
    params = SamplingParams(max_tokens=60, seed=3, ignore_eos=True, keep=keep)
    whole = llama.engine(torch.float64).generate(prompts[:4], params, [0, 1, 2, 3])
    engine = llama.engine(torch.float64)

    async def until(finished: int) -> list[Sample]:
        tasks = [asyncio.create_task(engine.sample(prompt, params, i)) for i, prompt in enumerate(prompts[:4])]
        while not any(len(s.ids) >= finished for s in engine._scheduler.running):
            await asyncio.sleep(0.001)
        engine.abort([1, 3])
        aborted = [(await asyncio.wait_for(task, DEADLINE))[0] for task in (tasks[1], tasks[3])]
        others = [(await asyncio.wait_for(task, DEADLINE))[0] for task in (tasks[0], tasks[2])]
        assert [s.finish for s in others] == ["length", "length"]
        assert [s.ids for s in others] == [whole[0].ids, whole[2].ids]
        return aborted

    aborted = asyncio.run(until(9))
    for sample, sample_id in zip(aborted, (1, 3)):
        assert sample.finish == "abort"
        assert 0 < len(sample.ids) < 60
        assert sample.ids == whole[sample_id].ids[: len(sample.ids)]
        rest = replace(params, max_tokens=60 - len(sample.ids))
        finished = engine.generate([sample], rest, [sample_id])[0]
        assert finished.ids == whole[sample_id].ids
        assert len(finished.segments) == 1  # the policy went on where it was interrupted
        torch.testing.assert_close(finished.log_probs, whole[sample_id].log_probs, atol=1e-8, rtol=0)


def test_abort_ends_everything_that_was_asked_for_before_and_nothing_after(llama, prompts) -> None:
    engine = llama.engine(slots=2)
    params = SamplingParams(n=2, max_tokens=100_000, ignore_eos=True)

    async def run() -> None:
        tasks = [asyncio.create_task(engine.sample(prompt, params, 2 * i)) for i, prompt in enumerate(prompts)]
        await asyncio.sleep(0.05)
        engine.abort()
        for task in tasks:
            assert [s.finish for s in await asyncio.wait_for(task, DEADLINE)] == ["abort", "abort"]
        (after,) = await asyncio.wait_for(engine.sample(prompts[0], SamplingParams(max_tokens=3)), DEADLINE)
        assert after.finish in ("stop", "length")

    asyncio.run(run())


def test_new_weights_in_flight_are_marked_where_they_begin(llama, prompts) -> None:
    engine = llama.engine()
    params = SamplingParams(max_tokens=400, ignore_eos=True)
    embedding = engine._runner.model.get_input_embeddings().weight

    async def run() -> Sample:
        task = asyncio.create_task(engine.sample(prompts[0], params))
        for version in (1, 2):
            before = engine._scheduler.running[0].ids[:] if engine._scheduler.running else []
            while not engine._scheduler.running or len(engine._scheduler.running[0].ids) < len(before) + 20:
                await asyncio.sleep(0.001)
            with engine.pause(), torch.no_grad():
                length = len(engine._scheduler.running[0].ids)
                time.sleep(0.02)
                assert len(engine._scheduler.running[0].ids) == length
                embedding.mul_(1.01)
                engine.load_weights(lambda: iter(()), version)
        (sample,) = await asyncio.wait_for(task, DEADLINE)
        return sample

    sample = asyncio.run(run())
    assert [segment.version for segment in sample.segments] == [0, 1, 2]
    assert (sample.version, sample.turns, len(sample.ids)) == (0, 1, 400)
    assert sample.versions == sorted(sample.versions)


def test_a_pause_is_granted_while_another_thread_steps_without_rest(llama, prompts) -> None:
    engine = llama.engine()
    thread = threading.Thread(
        target=lambda: engine.generate(prompts, SamplingParams(n=8, max_tokens=150, ignore_eos=True))
    )
    thread.start()
    began, granted = time.monotonic(), 0
    while thread.is_alive() and granted < 20:
        with engine.pause():
            granted += 1
    waited = time.monotonic() - began
    thread.join(DEADLINE)
    assert granted == 20 or waited < 1.0
    assert not thread.is_alive()


def test_a_continuation_that_cannot_be_read_is_refused_alone(llama, prompts) -> None:
    engine = llama.engine()
    first = engine.generate([prompts[0]], TURN)[0]
    with pytest.raises(UserError, match=r"row 0: a prompt is one or more token ids from 0 to 319"):
        engine.generate([_answered(first, [320])], TURN)
    assert engine.generate([_answered(first, [])], TURN)[0].turns == 2
