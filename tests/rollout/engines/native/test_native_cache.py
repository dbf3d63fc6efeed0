"""The cache grows as responses do, keeps what it holds, and gives its memory back."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.cache import SlotCache


def _cache() -> SlotCache:
    return SlotCache(layers=2, heads=2, head_dim=3, dtype=torch.float32, device=torch.device("cpu"))


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 300)), min_size=1, max_size=6))
def test_growing_keeps_what_is_there_and_all_in_reach_is_finite(steps: list[tuple[int, int]]) -> None:
    cache = _cache()
    held = torch.empty((2, 2, 0, 0, 2, 3))
    torch.use_deterministic_algorithms(True)  # new memory is NaN, as it may be in earnest
    try:
        for slots, tokens in steps:
            cache.reserve(slots, tokens)
            assert cache.data.shape[2] >= slots
            assert cache.data.shape[3] >= tokens
            old_slots, old_tokens = held.shape[2:4]
            assert torch.equal(cache.data[:, :, :old_slots, :old_tokens], held)
            slots, tokens = max(slots, old_slots), max(tokens, old_tokens)
            assert cache.data[:, :, :slots, :tokens].isfinite().all()
            for slot in range(slots):
                cache.fill(slot, torch.randn(2, 2, tokens, 2, 3))
            held = cache.data[:, :, :slots, :tokens].clone()
    finally:
        torch.use_deterministic_algorithms(False)


def test_fill_and_move() -> None:
    cache = _cache()
    cache.reserve(3, 10)
    kv = torch.randn(2, 2, 7, 2, 3)
    cache.fill(2, kv)
    cache.move(2, 0, 7)
    assert torch.equal(cache.data[:, :, 0, :7], kv)
    assert torch.equal(cache.data[:, :, 2, :7], kv)
    assert (cache.data[:, :, 1, :10] == 0).all()


def test_release_gives_the_memory_back_and_the_engine_works_on(llama, prompts) -> None:
    engine = llama.engine(torch.float64)
    params = SamplingParams(n=2, max_tokens=100)
    before = engine.generate(prompts, params)
    cache = engine._runner.cache
    assert cache.data.numel() > 0
    engine.release()
    assert cache.data.numel() == 0
    assert [s.ids for s in engine.generate(prompts, params)] == [s.ids for s in before]


def test_the_cache_grows_with_the_responses_and_then_no_more(llama, prompts) -> None:
    engine = llama.engine(ends=(), slots=4)
    cache = engine._runner.cache
    engine.generate(prompts, SamplingParams(max_tokens=2))
    short = cache.data.numel()
    sizes = set()
    for seed in range(4):
        engine.generate(prompts, SamplingParams(max_tokens=120, seed=seed))
        sizes.add(cache.data.numel())
    assert len(sizes) == 1
    assert short < max(sizes)
    slots, capacity = cache.data.shape[2:4]
    assert slots == 4
    assert 70 + 119 <= capacity <= 2 * (70 + 120)


def test_nothing_is_kept_of_finished_requests(llama, prompts) -> None:
    engine = llama.engine(slots=3)
    requests = [engine.submit(p, SamplingParams(n=4, max_tokens=8)) for p in prompts]
    while any(r.unfinished for r in requests):
        engine.step()
    assert all(r.prefilled is None for r in requests)
    assert not engine._scheduler.running
    assert not engine._scheduler.waiting
