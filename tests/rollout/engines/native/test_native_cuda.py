"""The native engine on a CUDA device: graphs, memory that is lent, and bits that do not depend on a batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from whet.learn.scoring import score
from whet.model.fused import decoder_of, make_exact
from whet.model.load import load_model
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native import engine as native_engine
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=320,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=64,
        initializer_range=0.1,
        eos_token_id=None,
        bos_token_id=None,
    )
    folder = tmp_path_factory.mktemp("cuda")
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def _prompts(count: int) -> list[Prompt]:
    random = torch.Generator().manual_seed(0)
    lengths = [3, 70, 1, 12, 33, 16, 17] * count
    return [
        Prompt(f"row {i}", torch.randint(5, 320, (n,), generator=random).tolist(), "")
        for i, n in enumerate(lengths[:count])
    ]


def _engine(path: str, tokenizer: Any, slots: int = 64, eager: bool = False, exact: bool = False) -> NativeEngine:
    model = load_model(path, torch.bfloat16, "cuda")
    assert decoder_of(model) is not None
    if exact:
        make_exact(model)
    return NativeEngine(model, tokenizer, frozenset({1}), slots, eager=eager)


def test_graphs_draw_what_is_launched_kernel_by_kernel(path: str, tokenizer: Any) -> None:
    params = SamplingParams(n=3, max_tokens=45, seed=5)
    expected = _engine(path, tokenizer, eager=True).generate(_prompts(7), params)
    graphs = _engine(path, tokenizer)
    for _ in range(2):  # the second time the graphs are there already
        drawn = graphs.generate(_prompts(7), params)
        assert [s.ids for s in drawn] == [s.ids for s in expected]
        assert [s.log_probs for s in drawn] == [s.log_probs for s in expected]


def test_graphs_outlive_the_memory_of_the_cache(path: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from whet.rollout.engines.native import storage

    monkeypatch.setattr(storage, "kept_cache", lambda total, weights: 0)
    params = SamplingParams(n=2, max_tokens=30, seed=2)
    engine = _engine(path, tokenizer)
    expected = engine.generate(_prompts(7), params)
    before = torch.cuda.mem_get_info()[0]
    engine.release()
    assert torch.cuda.mem_get_info()[0] > before
    captured = dict(engine._runner._graphs)  # type: ignore[attr-defined]
    torch.full((2**28,), 7, dtype=torch.int8, device="cuda")  # somebody else's use of it
    drawn = engine.generate(_prompts(7), params)
    assert [s.ids for s in drawn] == [s.ids for s in expected]
    assert engine._runner._graphs == captured  # type: ignore[attr-defined]


@pytest.mark.parametrize("exact", [True, False])
def test_samples_under_preemption_and_in_chunks(path: str, tokenizer: Any, exact: bool) -> None:
    """In exact mode to the bit; else each sequence agrees up to the first token that rounding decides."""
    params = SamplingParams(n=4, max_tokens=150, seed=4, ignore_eos=True)
    expected = _engine(path, tokenizer, exact=exact).generate(_prompts(7), params)
    model = load_model(path, torch.bfloat16, "cuda")
    if exact:
        make_exact(model)
    engine = NativeEngine(model, tokenizer, frozenset({1}), 28, max_num_batched_tokens=32)
    engine._runner._storage.capacity = lambda: 1 + 80  # type: ignore[attr-defined]
    drawn = engine.generate(_prompts(7), params)
    assert engine.occupancy().preemptions > 0
    assert engine.occupancy().pages_used == 0
    if exact:
        assert [s.ids for s in drawn] == [s.ids for s in expected]
        assert [s.log_probs for s in drawn] == [s.log_probs for s in expected]
    else:
        alike = sum(a.ids[:20] == b.ids[:20] for a, b in zip(drawn, expected))
        assert alike > len(drawn) * 0.8


def test_the_cache_takes_what_is_used_and_no_more(path: str, tokenizer: Any) -> None:
    engine = _engine(path, tokenizer, slots=8)
    engine.generate(_prompts(1), SamplingParams(max_tokens=2))
    first = engine.occupancy().pages
    share = engine._runner._storage.capacity()  # type: ignore[attr-defined]
    assert first < share // 16
    long = [Prompt("long", [5] * 16_000, "")] * 8
    drawn = engine.generate(long, SamplingParams(max_tokens=40, ignore_eos=True))
    assert [len(s.ids) for s in drawn] == [40] * 8


def test_exact_samples_do_not_depend_on_the_batch(path: str, tokenizer: Any) -> None:
    params = SamplingParams(n=3, max_tokens=40, seed=4)
    many = _engine(path, tokenizer, slots=64, exact=True).generate(_prompts(14), params)
    few = _engine(path, tokenizer, slots=5, exact=True).generate(_prompts(14), params)
    assert [s.ids for s in many] == [s.ids for s in few]
    assert [s.log_probs for s in many] == [s.log_probs for s in few]


@pytest.mark.parametrize("share_prefix", [True, False])
def test_exact_training_sees_the_log_probs_that_sampling_saw(path: str, tokenizer: Any, share_prefix: bool) -> None:
    engine = _engine(path, tokenizer, exact=True)
    model = engine._runner.model  # type: ignore[attr-defined]
    samples = engine.generate(_prompts(14), SamplingParams(n=3, max_tokens=60, seed=6))
    scored = score(model.train(), samples, 1.0, share_prefix)
    for row, sample in zip(scored.log_probs_BT.detach().cpu(), samples):
        assert row[: len(sample.ids)].tolist() == sample.log_probs
    scored.log_probs_BT.sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_a_model_that_kernels_do_not_serve_takes_the_plain_runner(path: str, tokenizer: Any) -> None:
    model = load_model(path, torch.float64, "cuda")
    engine = NativeEngine(model, tokenizer, frozenset({1}), 8)
    assert isinstance(engine._runner, native_engine.ModelRunner)
    assert len(engine.generate(_prompts(2), SamplingParams(max_tokens=3))) == 2
