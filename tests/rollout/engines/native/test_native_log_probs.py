"""The log-probs of a sample are those of a full forward pass by transformers' own model."""

from __future__ import annotations

import pytest
import torch

from whet.rollout.engine import SamplingParams


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral"])
@pytest.mark.parametrize(
    ("slots", "budget", "n"),
    [(64, 8192, 3), (4, 8192, 3), (3, 16, 5), (1, 1, 2)],
    ids=["all at once", "refilled slots", "more samples than slots", "one at a time"],
)
def test_log_probs_match_a_full_forward_pass(tiny, prompts, full_log_probs, kind, slots, budget, n) -> None:
    model = tiny(kind)
    params = SamplingParams(n=n, temperature=0.7, max_tokens=24, seed=5)
    samples = model.engine(ends=tuple(range(0, 320, 16)), slots=slots, budget=budget).generate(prompts, params)
    assert [(s.prompt.uid, s.index) for s in samples] == [(p.uid, i) for p in prompts for i in range(n)]
    assert len({len(s.ids) for s in samples}) > 1  # some ended early, so that slots were refilled at different times
    reference = model.reference()
    for sample in samples:
        assert len(sample.log_probs) == len(sample.ids) == len(sample.mask)
        assert sample.log_probs == pytest.approx(full_log_probs(reference, sample, 0.7), abs=1e-4)


def test_filters_do_not_change_the_log_prob_that_is_reported(llama, prompts, full_log_probs) -> None:
    params = SamplingParams(n=2, temperature=1.3, top_k=20, top_p=0.8, min_p=0.05, max_tokens=16)
    for sample in llama.engine().generate(prompts, params):
        expected = full_log_probs(llama.reference(), sample, 1.3)
        assert sample.log_probs == pytest.approx(expected, abs=1e-4)


def test_greedy_reports_log_probs_at_temperature_one(llama, prompts, full_log_probs) -> None:
    for sample in llama.engine().generate(prompts, SamplingParams(temperature=0.0, max_tokens=16)):
        assert sample.log_probs == pytest.approx(full_log_probs(llama.reference(), sample, 1.0), abs=1e-4)


def test_double_precision_agrees_far_beyond_float(llama, prompts, full_log_probs) -> None:
    """What is left of the difference is the float32 of the sampler: the passes themselves are the same numbers."""
    reference = llama.reference(torch.float64)
    for sample in llama.engine(torch.float64, slots=2).generate(prompts, SamplingParams(max_tokens=16)):
        assert sample.log_probs == pytest.approx(full_log_probs(reference, sample, 1.0), abs=5e-6)


def test_memory_that_held_something_else_does_not_show(llama, prompts, full_log_probs) -> None:
    """Under deterministic algorithms torch fills new memory with NaN: any number read before it is written shows."""
    torch.use_deterministic_algorithms(True)
    try:
        samples = llama.engine(slots=5).generate(prompts, SamplingParams(n=2, max_tokens=90))
    finally:
        torch.use_deterministic_algorithms(False)
    for sample in samples:
        assert sample.log_probs == pytest.approx(full_log_probs(llama.reference(), sample, 1.0), abs=1e-4)
