"""The paged runner draws what the plain one draws, whatever is shared, refilled, filtered or cut short."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from tiny_models import MakeTiny
from transformers import PreTrainedModel

pytest.importorskip("triton", reason="the paged runner is made of triton kernels")

from whet import kernels
from whet.errors import UserError
from whet.model.load import load_model
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.rollout.engines.native.flight import LOOKAHEAD
from whet.rollout.engines.native.paged import PagedRunner
from whet.rollout.engines.native.pages import PAGE
from whet.rollout.engines.native.reading import Places
from whet.rollout.engines.native.runner import ModelRunner
from whet.rollout.engines.native.sequence import ChunkRow
from whet.rollout.engines.native.short_reading import ShortReading
from whet.types import Prompt, Sample, Segment

pytestmark = pytest.mark.early
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Make = Callable[..., NativeEngine]


@pytest.fixture
def path(tiny: MakeTiny, request: pytest.FixtureRequest) -> str:
    """One layer for quick tests, whose subject is slots and windows; model/test_decoder.py pages two."""
    layers = 2 if DEVICE == "cuda" or request.node.get_closest_marker("slow") else 1
    sizes = {"intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    return tiny("llama", num_hidden_layers=layers, **sizes).path


@pytest.fixture
def plain(path: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> NativeEngine:
    """The engine without pages; on a CPU its model is run by its own modules, not by kernels in the interpreter."""
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "available", lambda device: torch.device(device).type == "cuda")
        model = load_model(path, device=DEVICE)
        engine = NativeEngine(model, tokenizer, frozenset({1}), 64)
    engine._runner = ModelRunner(model)
    return engine


@pytest.fixture(scope="module")
def fused() -> Callable[[str], PreTrainedModel]:
    """Models with fused decoders, loaded once: fusing one runs all of its kernels."""
    return cache(lambda path: load_model(path, device=DEVICE))


@pytest.fixture
def paged(
    path: str,
    tokenizer: Any,
    fused: Callable[[str], PreTrainedModel],
    kernels_everywhere: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Make:
    """An engine over pages; without a GPU its kernels run in triton's interpreter, in windows of two tokens.

    The interpreter takes a tenth of a second for a token, and a window is computed whole: short ones waste little, and
    the same responses cross more borders between windows.
    """
    if DEVICE == "cpu":
        for name in [name for name in sys.modules if name.startswith(NativeEngine.__module__.rpartition(".")[0])]:
            if hasattr(sys.modules[name], "LOOKAHEAD"):
                monkeypatch.setattr(f"{name}.LOOKAHEAD", 2)

    def make(slots: int = 8, ends: frozenset[int] = frozenset({1}), budget: int = 8192) -> NativeEngine:
        engine = NativeEngine(fused(path), tokenizer, ends, slots, budget)
        assert isinstance(engine._runner, PagedRunner)
        return engine

    return make


def _prompts(*lengths: int) -> list[Prompt]:
    random = torch.Generator().manual_seed(0)
    return [
        Prompt(f"row {i}", torch.randint(5, 320, (n,), generator=random).tolist(), "") for i, n in enumerate(lengths)
    ]


def _alike(ours: list[Sample], theirs: list[Sample]) -> None:
    assert [s.ids for s in ours] == [s.ids for s in theirs]
    assert [s.finish for s in ours] == [s.finish for s in theirs]
    for a, b in zip(ours, theirs):
        assert a.log_probs == pytest.approx(b.log_probs, abs=1e-4)


def _all_pages_are_free(engine: NativeEngine) -> bool:
    runner = engine._runner
    assert isinstance(runner, PagedRunner)
    return runner._pages.pool.idle


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_same_samples_as_the_plain_runner(paged: Make, plain: NativeEngine, temperature: float) -> None:
    # one token, less than a page, exactly a page behind the first token, more than one
    prompts = _prompts(1, 5, PAGE + 1, 2 * PAGE + 3)
    params = SamplingParams(n=2, temperature=temperature, max_tokens=LOOKAHEAD + 3, seed=5)
    engine = paged()
    expected = plain.generate(prompts, params)
    for some in (prompts, prompts[1:2]):  # once more over pages that were in use
        again = engine.generate(some, params, sample_ids=[2 * prompts.index(p) for p in some])
        _alike(again, [s for s in expected if s.prompt in some])
        assert _all_pages_are_free(engine)


def test_a_row_of_fixed_size_leaves_the_keys_and_values_of_any_other(
    paged: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, params = _prompts(3, 20), SamplingParams(max_tokens=2, seed=2)
    expected = paged().generate(prompts, params)
    read = []

    def read_short(runner: PagedRunner, row: ChunkRow, places: Places) -> bool:
        reading = ShortReading(runner, 24)
        reading.fill(runner, row, places.slots(row.lengths))
        reading.launch(runner)
        read.append(row.lengths.tolist())
        return True

    monkeypatch.setattr(PagedRunner, "_read_short", read_short)
    _alike(paged().generate(prompts, params), expected)
    assert read == [[2, 19]]


def test_slots_are_refilled_and_emptied(paged: Make, plain: NativeEngine) -> None:
    params = SamplingParams(n=2, max_tokens=5, seed=2)
    prompts = _prompts(4, 20, 2)
    ends = frozenset(range(1, 60))  # many responses end early
    engine = paged(slots=2, ends=ends)
    plain._stop._end_ids = ends
    _alike(engine.generate(prompts, params), plain.generate(prompts, params))
    assert _all_pages_are_free(engine)


def test_filters_and_temperatures_may_differ(paged: Make, plain: NativeEngine) -> None:
    common = SamplingParams(max_tokens=4, seed=3)
    wanted = [common, replace(common, top_k=3), replace(common, temperature=0.0), replace(common, top_p=0.5, min_p=0.1)]
    prompts = _prompts(3, 4, 5, 6)
    drawn = []
    for engine in (paged(), plain):
        requests = [engine.submit(p, w, i) for i, (p, w) in enumerate(zip(prompts, wanted))]
        while any(r.unfinished for r in requests):
            engine.step()
        drawn.append([s for r in requests for s in r.samples(0)])
    _alike(*drawn)


def test_a_stop_string_ends_a_response_inside_a_window(paged: Make, plain: NativeEngine, tokenizer: Any) -> None:
    prompts = _prompts(5)
    ids = plain.generate(prompts, SamplingParams(max_tokens=6, seed=1))[0].ids
    stop = tokenizer.decode(ids[2:3])
    params = SamplingParams(max_tokens=6, seed=1, stop=(stop,))
    engine = paged()
    _alike(engine.generate(prompts, params), plain.generate(prompts, params))
    assert _all_pages_are_free(engine)


def test_requests_may_leave_at_any_time(paged: Make) -> None:
    engine = paged(slots=2)
    stays, leaves, waits = (
        engine.submit(p, SamplingParams(n=1, max_tokens=9), i) for i, p in enumerate(_prompts(3, 18, 4))
    )
    engine.step()
    engine.withdraw(leaves)
    engine.withdraw(waits)
    while stays.unfinished:
        engine.step()
    assert [r.samples(0)[0].finish for r in (leaves, waits)] == ["abort", "abort"]
    assert len(stays.samples(0)[0].ids) == 9
    assert _all_pages_are_free(engine)


@pytest.mark.slow
def test_a_longer_request_gets_a_larger_cache(paged: Make, plain: NativeEngine) -> None:
    engine = paged()
    for length, tokens in ((3, 2), (40, 4)):
        params = SamplingParams(max_tokens=tokens, seed=4)
        _alike(engine.generate(_prompts(length), params), plain.generate(_prompts(length), params))


@pytest.mark.slow
def test_few_pages_serve_many_sequences_one_after_the_other(paged: Make, plain: NativeEngine) -> None:
    engine = paged()
    engine._runner._storage.capacity = lambda: 6  # type: ignore[attr-defined]
    params = SamplingParams(n=4, max_tokens=5, seed=6)
    _alike(engine.generate(_prompts(20, 3), params), plain.generate(_prompts(20, 3), params))


@pytest.mark.slow
def test_preempted_samples_and_prompts_in_parts_are_the_same(paged: Make, plain: NativeEngine) -> None:
    """Two samples of 20 tokens need five pages and have four; what is read again is cut into threes."""
    params = SamplingParams(n=2, max_tokens=20, seed=6, ignore_eos=True)
    engine = paged(slots=2, budget=3)
    engine._runner._storage.capacity = lambda: 1 + 4  # type: ignore[attr-defined]
    _alike(engine.generate(_prompts(5), params), plain.generate(_prompts(5), params))
    assert engine.occupancy().preemptions == 1
    assert _all_pages_are_free(engine)


def test_what_never_fits_is_refused_and_the_engine_goes_on(paged: Make) -> None:
    engine = paged()
    engine._runner._storage.capacity = lambda: 4  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"row 0.*gpu_memory_utilization"):
        engine.generate(_prompts(3), SamplingParams(max_tokens=4 * PAGE))
    assert len(engine.generate(_prompts(3), SamplingParams(max_tokens=3))[0].ids) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("anew", [False, True])
def test_kept_pages_draw_what_a_whole_prefill_draws(paged: Make, plain: NativeEngine, anew: bool) -> None:
    """Three turns of episodes over kept pages, of which the template rewrites the last one or nothing."""
    prompts, params = _prompts(3, PAGE + 5), SamplingParams(max_tokens=5, seed=4, ignore_eos=True)

    def play(engine: NativeEngine, keep: bool) -> tuple[list[Sample], list[int]]:
        samples = engine.generate(prompts, replace(params, keep=keep), [0, 1])
        read = []
        for _ in range(2):
            starts = []
            for sample in samples:
                behind = [7, 300, 8]
                if anew:
                    behind = [*sample.prompt.ids, *sample.ids[1:4], *behind]
                starts.append(replace(sample, segments=[*sample.segments, Segment(behind, False, restart=anew)]))
            before = engine.prefilled_tokens
            samples = engine.generate(starts, replace(params, keep=keep), [0, 1])
            read.append(engine.prefilled_tokens - before)
        return samples, read

    engine = paged()
    (kept, read), (whole, _) = play(engine, True), play(plain, False)
    _alike(kept, whole)
    assert anew or read == [2 * 3, 2 * 3]
    assert engine.capabilities.prefix_reuse
    engine.release()
    assert _all_pages_are_free(engine)


def test_the_likeliest_tokens_are_those_of_the_plain_runner(paged: Make, plain: NativeEngine) -> None:
    (prompt,) = _prompts(5)
    asked = [SamplingParams(max_tokens=3, temperature=t, top_logprobs=k) for t, k in ((0.7, 3), (0.0, 0))]
    found = []
    for engine in (paged(2, frozenset()), plain):
        requests = [engine.submit(prompt, params, i) for i, params in enumerate(asked)]
        while any(request.unfinished for request in requests):
            engine.step()
        found.append([request.sequences[0].tops for request in requests])
    (ours, none), (theirs, nothing) = found
    assert none == nothing == []
    assert [[token for token, _ in place] for place in ours] == [[token for token, _ in place] for place in theirs]
    assert [v for p in ours for _, v in p] == pytest.approx([v for p in theirs for _, v in p], abs=1e-4)
    assert len(ours) == len(theirs) == 3
