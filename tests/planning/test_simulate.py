"""The simulator against closed forms, a step-by-step reference and bounds that any placement obeys."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.planning.decoding import DecodeCost, decode
from whet.planning.lengths import DISTRIBUTIONS, draw
from whet.planning.simulate import Scenario, UpdateCost, simulate

COST = DecodeCost(base=2e-3, per_sequence=1e-5, per_token=1e-8, prefill=1e-6)
SYNC = Scenario(engines=2, decode=COST, update=UpdateCost(0.1, 1e-5), batch=8, samples=4, slots=16, prompt=100)
APART = replace(SYNC, apart=True)


def stepwise(prompts: list[float], lengths: list[int], slots: int, cost: DecodeCost) -> float:
    """Decode one token of every running sequence at a time, as an engine does."""
    waiting, running, now = list(zip(prompts, lengths)), [], 0.0
    while waiting or running:
        while waiting and len(running) < slots:
            prompt, length = waiting.pop(0)
            running.append([prompt, length])
            now += prompt * cost.prefill
        cached = sum(each[0] for each in running) + len(running)
        now += cost.base + cost.per_sequence * max(0, len(running) - cost.free) + cost.per_token * cached
        running = [[context + 1, left - 1] for context, left in running if left > 1]
    return now


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 12), st.floats(0, 8))
def test_decoding_is_that_of_every_single_step(lengths: list[int], slots: int, free: float) -> None:
    cost, prompts = replace(COST, free=free), [float(7 * i % 50) for i in range(len(lengths))]
    assert decode(prompts, lengths, slots, cost).seconds == pytest.approx(stepwise(prompts, lengths, slots, cost))


def test_a_synchronous_step_is_its_rollout_and_its_update() -> None:
    lengths = draw("geometric", 60, 400, SYNC.batch * SYNC.samples, seed=3)
    one = replace(SYNC, engines=1, reward=0.5, slots=64)
    rollout = decode([100.0] * len(lengths), lengths, 64, COST).seconds
    update = 0.1 + 1e-5 * (sum(lengths) + 100 * one.batch)
    result = simulate(one, lengths, steps=4)
    assert result.steps == pytest.approx([rollout + 0.5 + update] * 4)
    assert result.staleness == 0
    reading = simulate(replace(one, decode=replace(COST, reading=0.25)), lengths, steps=4)  # all prompts in one pass
    assert reading.steps == pytest.approx([rollout + 0.75 + update] * 4)


def test_one_step_off_takes_the_longer_of_rollout_and_update() -> None:
    lengths = [50] * SYNC.batch * SYNC.samples
    rollout = simulate(replace(SYNC, update=UpdateCost(0, 0)), lengths, 4).step
    for update in (0.2 * rollout, 5 * rollout):
        result = simulate(replace(APART, staleness=1, update=UpdateCost(update, 0)), lengths, 12)
        assert result.step == pytest.approx(max(rollout, update), rel=0.05)


def test_in_turns_a_step_does_not_wait_for_its_longest_sample() -> None:
    """Engines and learner share devices, so never both work; with a long tail of lengths it pays nevertheless."""
    lengths = draw("lognormal", 60, 2000, 40 * SYNC.batch * SYNC.samples, seed=3, spread=1.2)
    sync = simulate(SYNC, lengths, 20)
    turns = simulate(replace(SYNC, staleness=2, partial=True), lengths, 20)
    assert turns.step < 0.8 * sync.step
    assert turns.engines_idle + turns.learner_idle > 0.99  # a decode step that an update meets is finished
    assert 0 < turns.staleness <= 4


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 1000),
    st.integers(1, 4),
    st.integers(0, 6),
    st.booleans(),
    st.booleans(),
    st.floats(0, 0.3),
    st.floats(0, 1),
)
def test_no_placement_beats_what_its_parts_allow(
    seed: int, engines: int, bound: int, partial: bool, recompute: bool, sync: float, reward: float
) -> None:
    lengths = draw("lognormal", 60, 600, 400, seed)
    scenario = replace(
        APART, engines=engines, staleness=bound, partial=partial, recompute_cache=recompute, sync=sync, reward=reward
    )
    result = simulate(scenario, lengths, steps=12)
    assert result == simulate(scenario, lengths, steps=12)
    assert len(result.steps) == 12
    assert min(result.steps) >= scenario.update.fixed
    assert 0 <= result.engines_idle <= 1
    assert 0 <= result.learner_idle <= 1
    # Engines with all slots full decode this many tokens a second at most.
    fastest = engines * scenario.slots / (COST.base + COST.per_sequence * scenario.slots)
    total = sum(result.steps)
    assert total * fastest >= 0.5 * 12 * scenario.batch * scenario.samples * min(lengths)
    if bound == 0:
        assert result.staleness == 0


@pytest.mark.parametrize(("bound", "ahead"), [(1, None), (3, None), (4, 1), (2, 2)])
def test_no_group_is_older_than_the_bound_and_little_ahead_is_young(bound: int, ahead: int | None) -> None:
    lengths = draw("lognormal", 60, 2000, 40 * SYNC.batch * SYNC.samples, seed=3, spread=1.2)
    turns = replace(SYNC, engines=1, staleness=bound, ahead=ahead, partial=True)
    result = simulate(turns, lengths, 20)
    assert result.oldest <= bound
    assert result.staleness <= (bound if ahead is None else ahead) + 0.1
    again = simulate(replace(turns, recompute_cache=True, resumed=0.01), lengths, 20)
    assert again.step > result.step


def test_asynchrony_pays_where_lengths_have_a_tail() -> None:
    lengths = draw("lognormal", 200, 4000, 2000, seed=1, spread=1.2)
    together = simulate(replace(SYNC, engines=4, update=UpdateCost(0.05, 2e-6)), lengths, 20)
    apart = replace(APART, engines=3, update=UpdateCost(0.05, 8e-6), partial=True)
    steps = [simulate(replace(apart, staleness=bound), lengths, 40).step for bound in (1, 4, 8)]
    assert steps[2] <= steps[1] <= steps[0]
    assert steps[1] < together.step


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_lengths_have_the_mean_that_was_asked_for(kind: str) -> None:
    drawn = draw(kind, 300, 2048, 20_000, seed=5)
    assert drawn == draw(kind, 300, 2048, 20_000, seed=5)
    assert min(drawn) >= 1
    assert max(drawn) <= 2048
    assert statistics.mean(drawn) == pytest.approx(300, rel=0.04)


def test_geometric_lengths_that_are_cut_have_their_mean_too() -> None:
    assert statistics.mean(draw("geometric", 330, 512, 20_000)) == pytest.approx(330, rel=0.03)
