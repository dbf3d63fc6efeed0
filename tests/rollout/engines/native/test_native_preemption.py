"""Pages on demand under random traffic: samples are those of a cache without limits, and no page is lost or shared."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout.engines.native.book_runner import VOCABULARY, BookRunner, BookStorage

from whet.errors import UserError
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native import loop as native_loop
from whet.rollout.engines.native.loop import StepLoop
from whet.rollout.engines.native.pages import PAGE, PromptPages
from whet.rollout.engines.native.sequence import Request
from whet.types import Prompt

ENDS = frozenset({3, 11})
PLENTY = 100_000


@pytest.fixture(scope="module", autouse=True)
def _no_model() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_loop, "check_prompt", lambda model, prompt: None)
        yield


def _engine(pages: int, slots: int = 8, budget: int = 64, ends: frozenset[int] = ENDS, room: int | None = None) -> Any:
    runner = BookRunner(BookStorage(pages, room), ends)
    return StepLoop(runner, None, ends, slots, budget)  # type: ignore[arg-type]


def _prompt(name: str, tokens: int, seed: int = 0) -> Prompt:
    rng = random.Random(f"{name} {seed}")
    return Prompt(name, [rng.randrange(VOCABULARY) for _ in range(tokens)], "")


def _check_pages(engine: Any, requests: list[Request]) -> None:
    """Every page is free or has one owner, and a running sequence has those that it reads."""
    pool = engine._runner.pages.pool
    owners: Counter[int] = Counter(pool._free)
    for request in requests:
        held = request.prefilled
        if isinstance(held, PromptPages):
            owners.update(held.pages)
            assert held.users == sum(bool(s.pages) for s in request.sequences)
        for sequence in request.sequences:
            owners.update(sequence.pages)
            assert not sequence.pages or held is not None
    assert set(owners) == set(range(1, pool.pages))
    assert set(owners.values()) <= {1}
    assert [s.arrival for s in engine._scheduler.waiting] == sorted(s.arrival for s in engine._scheduler.waiting)


def _finish(engine: Any, requests: list[Request], most_steps: int = 5000) -> None:
    for _ in range(most_steps):
        if not any(request.unfinished for request in requests):
            break
        engine.step()
        _check_pages(engine, requests)
    else:
        pytest.fail("the engine does not come to an end")
    engine.step()  # a withdrawn request leaves with the next step
    assert engine._runner.pages.pool.idle


def _written(requests: list[Request]) -> list[tuple[list[int], list[float], str | None]]:
    return [(s.ids, s.log_probs, s.finish) for request in requests for s in request.sequences]


REQUESTS = st.lists(
    st.tuples(st.integers(1, 70), st.integers(1, 4), st.integers(1, 90), st.booleans()), min_size=1, max_size=7
)


def _submit(engine: Any, wanted: list[tuple[int, int, int, bool]], between: Any = None) -> list[Request]:
    """Submit (prompt tokens, n, most tokens, whether ends are ignored); `between` is called after each."""
    requests = []
    for i, (tokens, n, most, endless) in enumerate(wanted):
        params = SamplingParams(n=n, max_tokens=most, ignore_eos=endless, seed=i)
        requests.append(engine.submit(_prompt(str(i), tokens), params, 10 * i))
        if between is not None:
            between()
    return requests


@settings(max_examples=60, deadline=None)
@given(wanted=REQUESTS, pages=st.integers(13, 40), slots=st.integers(1, 9), budget=st.integers(1, 100), data=st.data())
def test_samples_do_not_depend_on_the_pool(
    wanted: list[tuple[int, int, int, bool]], pages: int, slots: int, budget: int, data: st.DataObject
) -> None:
    unlimited, engine = _engine(PLENTY), _engine(pages, slots, budget)
    expected = _submit(unlimited, wanted)
    _finish(unlimited, expected)
    requests = _submit(engine, wanted, lambda: [engine.step() for _ in range(data.draw(st.integers(0, 3), "steps"))])
    _finish(engine, requests)
    assert _written(requests) == _written(expected)
    assert all(tokens <= budget for tokens in engine._runner.read_tokens)


@settings(max_examples=60, deadline=None)
@given(wanted=REQUESTS, pages=st.integers(13, 30), slots=st.integers(1, 9), data=st.data())
def test_requests_may_leave_a_full_pool_at_any_time(
    wanted: list[tuple[int, int, int, bool]], pages: int, slots: int, data: st.DataObject
) -> None:
    unlimited, engine = _engine(PLENTY), _engine(pages, slots, budget=20)
    expected = _submit(unlimited, wanted)
    _finish(unlimited, expected)
    requests = _submit(engine, wanted)
    while any(request.unfinished for request in requests):
        if data.draw(st.integers(0, 4), "leave") == 0:
            engine.withdraw(data.draw(st.sampled_from(requests)))
        engine.step()
        _check_pages(engine, requests)
    engine.step()
    assert engine._runner.pages.pool.idle
    for (ids, log_probs, finish), (whole, whole_log_probs, end) in zip(_written(requests), _written(expected)):
        assert ids == whole[: len(ids)]
        assert log_probs == whole_log_probs[: len(ids)]
        assert finish == "abort" or (finish, ids) == (end, whole)


def test_the_youngest_are_preempted_and_the_oldest_never() -> None:
    engine = _engine(pages=1 + 12, slots=6)
    wanted = [(10, 1, 100, True)] * 6
    requests = _submit(engine, wanted)
    lengths: list[list[int]] = []
    while requests[0].unfinished:
        engine.step()
        lengths.append([len(r.sequences[0].ids) for r in requests])
        assert requests[0].sequences[0].finish or requests[0].sequences[0] in engine._scheduler.running
    assert engine.preemptions > 0
    assert requests[0].sequences[0].finish == "length"
    _finish(engine, requests)
    pairs = [pair for before, after in pairwise(lengths) for pair in zip(before, after)]
    assert all(before <= after for before, after in pairs), "a token that was drawn stays"


def test_a_preempted_sequence_does_not_return_before_pages_are_free() -> None:
    """Each of 24 long sequences is read again a few times at most, though the pool holds a quarter of them."""
    engine = _engine(pages=1 + 24 * 3, slots=24, budget=1000)
    requests = _submit(engine, [(5, 1, 190, True)] * 24)
    _finish(engine, requests)
    assert engine._runner.most_running == 24  # all start at once: short sequences take few pages
    assert 0 < engine.preemptions < 3 * 24
    again = sum(engine._runner.read_tokens) - 24 * 4
    assert again < 24 * 190 * 2


def test_what_can_never_fit_is_refused_before_anything_is_sampled() -> None:
    engine = _engine(pages=5)
    stays = engine.submit(_prompt("fits", 3), SamplingParams(max_tokens=3 * PAGE - 2), 0)
    with pytest.raises(UserError, match=r"long: 3 prompt tokens and 47 new ones .*gpu_memory_utilization"):
        engine.submit(_prompt("long", 3), SamplingParams(max_tokens=3 * PAGE - 1), 1)
    _finish(engine, [stays])
    assert stays.error is None


def test_a_request_that_does_not_fit_beside_other_users_of_memory_ends_alone() -> None:
    engine = _engine(pages=40, room=4, ends=frozenset())
    requests = _submit(engine, [(3, 1, 20, True), (3, 2, 100, True), (60, 1, 5, True), (3, 1, 30, True)])
    _finish(engine, requests)
    assert [str(r.error).split(":")[0] if r.error else None for r in requests] == [None, "1", "2", None]
    assert [len(s.ids) for r in (requests[0], requests[3]) for s in r.sequences] == [20, 30]


def test_a_long_prompt_is_read_in_parts_while_others_are_decoded() -> None:
    engine = _engine(PLENTY, slots=4, budget=16, ends=frozenset())
    first = engine.submit(_prompt("first", 4), SamplingParams(max_tokens=200, ignore_eos=True), 0)
    for _ in range(3):
        engine.step()
    before = len(first.sequences[0].ids)
    late = engine.submit(_prompt("late", 100), SamplingParams(max_tokens=5, ignore_eos=True), 1)
    while late.prefilled is None or late.reading is not None:
        engine.step()
    assert engine._runner.read_tokens[-7:] == [16] * 6 + [3]  # all but the last token
    assert len(first.sequences[0].ids) >= before + 6 * 5
    _finish(engine, [first, late])


def test_the_pool_does_not_remember_the_first_request() -> None:
    engine = _engine(pages=1000, slots=64, budget=1000, ends=frozenset())
    short = engine.submit(_prompt("short", 3), SamplingParams(max_tokens=1), 0)
    _finish(engine, [short])
    requests = _submit(engine, [(5, 1, 200, True)] * 64)
    _finish(engine, requests)
    assert engine._runner.most_running == 64
    assert engine.preemptions == 0


def test_release_takes_what_waiting_sequences_hold() -> None:
    from whet.rollout.engines.native.engine import NativeEngine

    engine = _engine(pages=30, slots=2, budget=16)
    release = NativeEngine.release
    waits = engine.submit(_prompt("waits", 60), SamplingParams(max_tokens=20, ignore_eos=True), 0)
    engine.step()  # a part of the prompt
    assert not engine._scheduler.running
    assert not engine._runner.pages.pool.idle
    release(engine)
    assert engine._runner.storage.releases == 1
    _finish(engine, [waits])
    unlimited = _engine(PLENTY)
    expected = unlimited.submit(_prompt("waits", 60), SamplingParams(max_tokens=20, ignore_eos=True), 0)
    _finish(unlimited, [expected])
    assert _written([waits]) == _written([expected])
