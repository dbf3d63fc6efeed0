"""The native engine samples from the adapted model, on every kind of runner and as the adapters change."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from tiny_models import MakeTiny
from transformers import PreTrainedModel

from whet.config.schema.model import LoraConfig
from whet.model.fused import decoder_of
from whet.model.lora import adapters_off, add_adapters, merged_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt


def _adapt(model: PreTrainedModel) -> PreTrainedModel:
    add_adapters(model, LoraConfig(rank=2, alpha=4), "base", seed=1)
    _learn(model, 1)
    return model


def _learn(model: PreTrainedModel, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.normal_(std=0.4)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral"])
def test_samples_are_those_of_the_merged_model(
    kind: str, tiny: MakeTiny, prompts: list[Prompt], full_log_probs: Any
) -> None:
    made = tiny(kind)
    model, reference = _adapt(made.model()), made.reference()
    engine = NativeEngine(model, made.tokenizer, frozenset({1}), 8)
    params = SamplingParams(n=2, temperature=0.9, max_tokens=12, seed=3)
    first = made.engine(slots=8).generate(prompts, params)
    for seed in (1, 2):  # as an update would, in place
        _learn(model, seed)
        reference.load_state_dict(dict(merged_weights(model)))
        samples = engine.generate(prompts, params)
        assert [s.ids for s in samples] != [s.ids for s in first]
        for sample in samples:
            expected = full_log_probs(reference, sample, 0.9)
            torch.testing.assert_close(torch.tensor(sample.log_probs), torch.tensor(expected), rtol=0, atol=1e-4)
    with adapters_off(model):
        assert [s.ids for s in engine.generate(prompts, params)] == [s.ids for s in first]


@pytest.mark.skipif(find_spec("triton") is None, reason="the paged runner is made of triton kernels")
def test_the_paged_runner_sees_adapters_of_a_model_that_was_fused(
    llama: Any,
    prompts: list[Prompt],
    full_log_probs: Any,
    kernels_everywhere: None,
    device: torch.device,
    tiny: MakeTiny,
) -> None:
    from whet.model.load import load_model
    from whet.rollout.engines.native.paged import PagedRunner

    sizes = {"intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    small = tiny("llama", **sizes)
    model = load_model(small.path, device=device)
    assert decoder_of(model) is not None
    _adapt(model)
    assert decoder_of(model) is not None
    engine = NativeEngine(model, llama.tokenizer, frozenset({1}), 2)
    assert isinstance(engine._runner, PagedRunner)
    samples = engine.generate(prompts[:1], SamplingParams(n=2, max_tokens=4))
    reference = small.reference()
    reference.load_state_dict({name: weight.cpu() for name, weight in merged_weights(model)})
    for sample in samples:
        expected = full_log_probs(reference, sample, 1.0)
        torch.testing.assert_close(torch.tensor(sample.log_probs), torch.tensor(expected), rtol=0, atol=1e-3)
