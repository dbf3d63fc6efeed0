"""Slots stay dense whatever finishes when, in the order in which requests came."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.scheduler import Scheduler
from whet.rollout.engines.native.sequence import Chunk, Prefilled, Reading, Request, Sequence
from whet.types import Prompt


def _request(name: str, n: int, prompt_tokens: int = 3) -> Request:
    request = Request(Prompt(name, [7] * prompt_tokens, ""), SamplingParams(n=n), unfinished=n)
    request.sequences = [Sequence(request, i, key=i) for i in range(n)]
    return request


def _reserve(sequence: Sequence) -> bool:
    """Memory for everybody; a prompt must be read once."""
    request = sequence.request
    if request.prefilled is None and request.reading is None:
        request.reading = Reading(request, None, 0, len(request.prompt.ids))
    return True


def _prefill(chunks: list[Chunk]) -> None:
    for reading, stop in chunks:
        reading.advance(stop)
        if reading.at == reading.stop:
            reading.request.prefilled = Prefilled(None, None)  # type: ignore[arg-type]  # the scheduler does not look


def _read(chunks: list[Chunk]) -> list[tuple[Request, int, int]]:
    return [(reading.request, reading.at, stop) for reading, stop in chunks]


@settings(max_examples=100, deadline=None)
@given(slots=st.integers(1, 6), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), data=st.data())
def test_slots_stay_dense_and_moves_follow_the_sequences(slots: int, sizes: list[int], data: st.DataObject) -> None:
    scheduler = Scheduler(slots)
    memory: dict[int, Sequence] = {}  # what a cache that makes the moves would hold in each slot
    arrived: list[Sequence] = []
    started: list[Sequence] = []
    pending = [_request(str(i), n) for i, n in enumerate(sizes)]
    while pending or scheduler.waiting or scheduler.running:
        if pending and not data.draw(st.booleans(), "wait with the next request"):
            request = pending.pop(0)
            arrived += request.sequences
            scheduler.add(request)
        _prefill(scheduler.to_prefill(data.draw(st.integers(1, 12)), _reserve))
        for slot, sequence in scheduler.admit(_reserve):
            assert scheduler.running[slot] is sequence
            memory[slot] = sequence
            started.append(sequence)
        assert len(scheduler.running) <= slots
        for sequence in scheduler.running:
            if not data.draw(st.booleans(), "go on"):
                sequence.finish = "stop"
        survivors = {id(s) for s in scheduler.running if s.finish is None}
        for source, target, sequence in scheduler.remove_finished():
            assert source > target
            memory[target] = memory[source]
            assert memory[target] is sequence
        assert {id(s) for s in scheduler.running} == survivors
        assert all(memory[slot] is sequence for slot, sequence in enumerate(scheduler.running))
    assert started == arrived  # first come, first served


def test_only_prompts_that_are_next_for_a_slot_are_prefilled() -> None:
    scheduler = Scheduler(3)
    requests = [_request("a", 2), _request("b", 2), _request("c", 2)]
    for request in requests:
        scheduler.add(request)
    # three slots: two of a, one of b
    assert _read(scheduler.to_prefill(1000, _reserve)) == [(request, 0, 3) for request in requests[:2]]


def test_a_prompt_is_cut_only_if_it_is_longer_than_the_budget() -> None:
    scheduler = Scheduler(8)
    long, a, b = requests = [_request("long", 3, prompt_tokens=25), _request("a", 1), _request("b", 1)]
    for request in requests:
        scheduler.add(request)
    for start in (0, 10):
        chunks = scheduler.to_prefill(10, _reserve)
        assert _read(chunks) == [(long, start, start + 10)]
        _prefill(chunks)
        assert scheduler.admit(_reserve) == []
    chunks = scheduler.to_prefill(10, _reserve)
    assert _read(chunks) == [(long, 20, 25), (a, 0, 3)]  # b would be cut: it is read in the next pass
    _prefill(chunks)
    assert len(scheduler.admit(_reserve)) == 4
    assert _read(scheduler.to_prefill(10, _reserve)) == [(b, 0, 3)]


def test_a_prompt_that_is_not_prefilled_is_not_overtaken() -> None:
    scheduler = Scheduler(4)
    first, second = _request("a", 1), _request("b", 1)
    scheduler.add(first)
    scheduler.add(second)
    chunks = scheduler.to_prefill(10, _reserve)
    _prefill(chunks[1:])
    assert scheduler.admit(_reserve) == []
    _prefill(chunks[:1])
    assert [s for _, s in scheduler.admit(_reserve)] == [*first.sequences, *second.sequences]


def test_the_youngest_leaves_and_is_the_next_to_return() -> None:
    scheduler = Scheduler(3)
    request = _request("a", 4)
    scheduler.add(request)
    _prefill(scheduler.to_prefill(10, _reserve))
    scheduler.admit(_reserve)
    first, second, third, fourth = request.sequences
    first.finish = "stop"
    assert scheduler.remove_finished() == [(2, 0, third)]
    assert scheduler.youngest() is third
    assert scheduler.preempt(third) == [(1, 0, second)]
    assert list(scheduler.waiting) == [third, fourth]
    assert scheduler.admit(_reserve) == [(1, third), (2, fourth)]
