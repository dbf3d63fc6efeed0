"""Pages of samples that will be continued: not read again, given up where others need them, and never lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout.engines.native.book_runner import VOCABULARY, BookRunner, BookStorage

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native import loop as native_loop
from whet.rollout.engines.native.loop import StepLoop
from whet.rollout.engines.native.sequence import Request
from whet.types import Prompt, Sample, Segment

PLENTY = 100_000


@pytest.fixture(scope="module", autouse=True)
def _no_model() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_loop, "check_prompt", lambda model, prompt: None)
        yield


def _engine(pages: int, slots: int = 8) -> Any:
    return StepLoop(BookRunner(BookStorage(pages), frozenset({3, 11})), None, frozenset({3, 11}), slots, 64)  # type: ignore[arg-type]


def _run(engine: Any, requests: list[Request]) -> list[Sample]:
    for _ in range(5000):
        if not any(request.unfinished for request in requests):
            return [request.samples(0)[0] for request in requests]
        engine.step()
    pytest.fail("the engine does not come to an end")


def _answered(sample: Sample, seed: int, anew: bool) -> Sample:
    """The sample with an answer behind it, or with the conversation written anew without the first token drawn."""
    rng = random.Random(seed)
    answer = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 40))]
    if anew:
        answer = sample.prompt.ids + sample.ids[1:] + answer
    return Sample(sample.prompt, [*sample.segments, Segment(answer, False, restart=anew)], "stop")


def _used(engine: Any) -> int:
    return int(engine._runner.occupancy()[0])


def _play(engine: Any, lengths: list[int], turns: int, keep: bool, anew: int) -> list[Sample]:
    """Turns of several samples at once; with `anew` every so many turns the conversation is written anew."""
    params = SamplingParams(max_tokens=17, seed=5, keep=keep)
    prompts = [Prompt(str(i), [(7 * i + at) % VOCABULARY for at in range(n)], "") for i, n in enumerate(lengths)]
    samples = _run(engine, [engine.submit(prompt, params, i) for i, prompt in enumerate(prompts)])
    for turn in range(1, turns):
        starts = [_answered(s, 100 * turn + i, bool(anew) and turn % anew == 0) for i, s in enumerate(samples)]
        samples = _run(engine, [engine.submit(start, params, i) for i, start in enumerate(starts)])
    return samples


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    pages=st.integers(40, 90),
    slots=st.integers(1, 7),
    anew=st.integers(0, 2),
)
def test_samples_do_not_depend_on_what_is_kept(lengths: list[int], pages: int, slots: int, anew: int) -> None:
    turns = 3
    expected = _play(_engine(PLENTY), lengths, turns, keep=False, anew=anew)
    engine = _engine(pages, slots)
    assert [s.ids for s in _play(engine, lengths, turns, keep=True, anew=anew)] == [s.ids for s in expected]
    kept = [page for each in engine._runner.pages._kept for page in each.pages]
    assert len(set(kept)) == len(kept) == _used(engine)
    for i in range(len(lengths)):  # the episodes have ended
        engine.forget(5, i)
    engine.step()
    assert engine._runner.pages.pool.idle
    assert not engine._kept


def test_a_later_turn_reads_what_is_new_and_the_last_token_drawn() -> None:
    engine, prompt = _engine(PLENTY), Prompt("row", list(range(50)), "")
    params = SamplingParams(max_tokens=9, seed=5, keep=True, ignore_eos=True)
    (sample,) = _run(engine, [engine.submit(prompt, params, 3)])
    assert engine.prefilled_tokens == 49  # decoding reads the last
    for answer in ([1] * 7, [2], [4] * 40):
        before = engine.prefilled_tokens
        start = Sample(prompt, [*sample.segments, Segment(answer, False)], "stop")
        (sample,) = _run(engine, [engine.submit(start, params, 3)])
        assert engine.prefilled_tokens - before == len(answer)
    # Written anew from the third token of the response on: what stands before it is not read again.
    before, whole = engine.prefilled_tokens, prompt.ids + sample.ids
    restart = Segment([*whole[:52], 96, *whole[53:]], False, restart=True)
    _run(engine, [engine.submit(Sample(prompt, [*sample.segments, restart], "stop"), params, 3)])
    assert engine.prefilled_tokens - before == len(whole) - 52 - 1


def test_the_oldest_are_given_up_for_those_that_run() -> None:
    engine, params = _engine(pages=1 + 12), SamplingParams(max_tokens=8, seed=5, keep=True, ignore_eos=True)
    for i in range(3):
        _run(engine, [engine.submit(Prompt(str(i), [i] * 40, ""), params, i)])
    assert [len(kept.pages) for kept in engine._kept.values()] == [3, 3, 3]
    _run(engine, [engine.submit(Prompt("large", [9] * 100, ""), SamplingParams(max_tokens=8, ignore_eos=True), 9)])
    assert [len(kept.pages) for kept in engine._kept.values()] == [0, 0, 3]
    assert engine.preemptions == 0


def test_a_cancelled_turn_leaves_nothing_behind() -> None:
    engine, params = _engine(PLENTY), SamplingParams(max_tokens=50, seed=5, keep=True, ignore_eos=True)
    request = engine.submit(Prompt("row", [1] * 20, ""), params, 4)
    for _ in range(4):
        engine.step()
    engine.withdraw(request)
    engine.forget(5, 4)
    engine.step()
    assert engine._runner.pages.pool.idle
    # What waits for its turn with pages that were kept gives them back when it leaves, or when memory is released.
    first = _run(engine, [engine.submit(Prompt("row", [1] * 20, ""), params, 4)])[0]
    waiting = engine.submit(_answered(first, 0, False), params, 4)
    engine._join_and_leave()
    assert waiting.kept.pages
    engine.withdraw(waiting)
    engine._join_and_leave()
    assert engine._runner.pages.pool.idle


def test_new_weights_and_errors_forget_what_was_kept() -> None:
    engine, params = _engine(PLENTY), SamplingParams(max_tokens=5, seed=5, keep=True, ignore_eos=True)
    _run(engine, [engine.submit(Prompt("row", [1] * 20, ""), params, 4)])
    assert _used(engine) == 2
    engine._forget()
    assert engine._runner.pages.pool.idle
    _run(engine, [engine.submit(Prompt("row", [1] * 20, ""), params, 4)])
    engine._fail_all(RuntimeError("broken"))
    assert engine._runner.pages.pool.idle
    assert not engine._kept
