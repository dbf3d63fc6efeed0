"""The engine reads the learner's own weights: what the learner changes is what the next token is drawn with."""

from __future__ import annotations

import torch

from whet.model.attention import PackedAttention, Segment
from whet.model.load import head_of, hidden_states
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine


def test_an_update_in_place_is_seen_at_once(llama, prompts, full_log_probs) -> None:
    model = llama.model()
    engine = NativeEngine(model, llama.tokenizer, frozenset())
    reference = llama.reference()
    params = SamplingParams(max_tokens=16)
    before = engine.generate(prompts, params)
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), reference.parameters()):
            change = torch.randn(mine.shape, generator=torch.Generator().manual_seed(mine.numel())) * 0.05
            mine += change
            theirs += change
    after = engine.generate(prompts, params)
    assert [s.ids for s in after] != [s.ids for s in before]
    for sample in after:
        difference = torch.tensor(sample.log_probs) - torch.tensor(full_log_probs(reference, sample, 1.0))
        assert difference.abs().max() < 1e-4


def test_there_is_one_copy_of_the_weights(llama, prompts) -> None:
    model = llama.model()
    engine = NativeEngine(model, llama.tokenizer, frozenset())
    pointers = [p.data_ptr() for p in model.parameters()]
    engine.generate(prompts, SamplingParams(max_tokens=3))
    assert engine._runner.model is model
    assert head_of(engine._runner.model).weight_VH.data_ptr() == model.get_output_embeddings().weight.data_ptr()
    assert [p.data_ptr() for p in model.parameters()] == pointers


def test_training_goes_on_after_sampling(llama, prompts) -> None:
    model = llama.model()
    engine = NativeEngine(model, llama.tokenizer, frozenset())
    for _ in range(2):
        (sample,) = engine.generate(prompts[:1], SamplingParams(max_tokens=8))
        ids = torch.tensor(sample.prompt.ids + sample.ids)
        hidden = hidden_states(model, ids, torch.arange(len(ids)), PackedAttention([Segment(0, len(ids))]))
        head_of(model).logits(hidden).logsumexp(-1).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        assert torch.is_grad_enabled()
