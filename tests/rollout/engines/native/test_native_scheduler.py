"""Slots stay dense whatever finishes when, in the order in which requests came."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.scheduler import Prefilled, Request, Scheduler, Sequence
from whet.types import Prompt


def _request(name: str, n: int, prompt_tokens: int = 3) -> Request:
    request = Request(Prompt(name, [7] * prompt_tokens, ""), SamplingParams(n=n), unfinished=n)
    request.sequences = [Sequence(request, i, key=i) for i in range(n)]
    return request


def _yes(_: object) -> bool:
    return True


def _prefill(requests: list[Request]) -> None:
    for request in requests:
        request.prefilled = Prefilled(None, None)  # type: ignore[arg-type]  # the scheduler only asks whether it is there


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
        _prefill(scheduler.to_prefill(data.draw(st.integers(1, 12)), _yes))
        for slot, sequence in scheduler.admit(_yes):
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
    assert scheduler.to_prefill(1000, _yes) == requests[:2]  # three slots: two of a, one of b


def test_the_prefill_budget_counts_each_prompt_once_and_lets_one_long_prompt_through() -> None:
    scheduler = Scheduler(8)
    requests = [_request("long", 3, prompt_tokens=50), _request("a", 1), _request("b", 1)]
    for request in requests:
        scheduler.add(request)
    assert scheduler.to_prefill(10, _yes) == requests[:1]
    _prefill(requests[:1])
    assert len(scheduler.admit(_yes)) == 3
    assert scheduler.to_prefill(6, _yes) == requests[1:]


def test_a_prompt_that_is_not_prefilled_is_not_overtaken() -> None:
    scheduler = Scheduler(4)
    first, second = _request("a", 1), _request("b", 1)
    scheduler.add(first)
    scheduler.add(second)
    _prefill([second])
    assert scheduler.admit(_yes) == []
    _prefill([first])
    assert [s for _, s in scheduler.admit(_yes)] == [*first.sequences, *second.sequences]
