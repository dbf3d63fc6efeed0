"""The native engine on a CUDA device: captured graphs draw what the plain path draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from whet.model.load import load_model
from whet.rollout.engine import SamplingParams
from whet.rollout.native import NativeEngine
from whet.rollout.native.graph import GraphRunner
from whet.rollout.native.runner import ModelRunner
from whet.types import Prompt

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def _engine(tiny: Any, ends: frozenset[int] = frozenset({1}), slots: int = 64) -> NativeEngine:
    return NativeEngine(load_model(tiny.path, torch.float64, "cuda"), tiny.tokenizer, ends, slots)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral"])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_graphs_draw_what_the_plain_path_draws(
    tiny: Callable[[str], Any], prompts: list[Prompt], kind: str, temperature: float
) -> None:
    params = SamplingParams(n=3, temperature=temperature, max_tokens=45, seed=5)
    plain = _engine(tiny(kind))
    plain._runner = ModelRunner(plain._runner.model)
    graphs = _engine(tiny(kind))
    assert isinstance(graphs._runner, GraphRunner)
    expected = plain.generate(prompts, params)
    for _ in range(2):  # the second time the graphs are there already
        drawn = graphs.generate(prompts, params)
        graphs.release()
        assert [s.ids for s in drawn] == [s.ids for s in expected]
        assert [s.finish for s in drawn] == [s.finish for s in expected]
        for ours, theirs in zip(drawn, expected):
            assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-5)


def test_few_slots_are_refilled(llama: Any, prompts: list[Prompt]) -> None:
    params = SamplingParams(n=4, max_tokens=30, seed=2)
    many, few = (_engine(llama, slots=slots).generate(prompts, params) for slots in (64, 3))
    assert [s.ids for s in many] == [s.ids for s in few]


def test_filters_take_the_plain_path(llama: Any, prompts: list[Prompt]) -> None:
    params = SamplingParams(n=2, top_k=1, max_tokens=12)
    greedy = SamplingParams(n=2, temperature=0.0, max_tokens=12)
    engine = _engine(llama)
    assert [s.ids for s in engine.generate(prompts, params)] == [s.ids for s in engine.generate(prompts, greedy)]
