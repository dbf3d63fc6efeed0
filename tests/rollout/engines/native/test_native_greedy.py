"""Greedy sampling writes what `model.generate(do_sample=False)` writes, token for token."""

from __future__ import annotations

import pytest
import torch

from whet.rollout.engine import SamplingParams


@torch.no_grad()
def _generate(model, prompt, max_tokens: int, ends: list[int] | None) -> list[int]:
    ids = torch.tensor([prompt.ids])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=max_tokens,
        eos_token_id=ends,
        pad_token_id=0,
    )
    return out[0, len(prompt.ids) :].tolist()


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral"])
def test_greedy_is_generate_token_for_token(tiny, prompts, kind) -> None:
    model = tiny(kind)
    samples = model.engine(torch.float64, slots=4).generate(prompts, SamplingParams(temperature=0.0, max_tokens=40))
    reference = model.reference(torch.float64)
    for sample in samples:
        assert sample.ids == _generate(reference, sample.prompt, 40, [1])


def test_any_of_several_end_tokens_ends_a_response_and_is_kept(llama, prompts) -> None:
    reference = llama.reference(torch.float64)
    free = [_generate(reference, p, 30, None) for p in prompts]
    ends = sorted({free[0][4], free[1][0], free[3][9]})  # tokens that come up for some prompts, first or later
    samples = llama.engine(torch.float64, ends=tuple(ends)).generate(
        prompts, SamplingParams(temperature=0.0, max_tokens=30)
    )
    for sample in samples:
        assert sample.ids == _generate(reference, sample.prompt, 30, ends)
        assert sample.finish == ("stop" if sample.ids[-1] in ends else "length")
    assert [s.finish for s in samples].count("stop") >= 3
    assert len(samples[1].ids) == 1


def test_ignore_eos_writes_on_to_the_length(llama, prompts) -> None:
    reference = llama.reference(torch.float64)
    free = [_generate(reference, p, 30, None) for p in prompts]
    engine = llama.engine(torch.float64, ends=tuple(row[0] for row in free))
    samples = engine.generate(prompts, SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True))
    assert [s.ids for s in samples] == free
    assert {s.finish for s in samples} == {"length"}


def test_an_end_token_at_the_last_place_is_a_stop(llama, prompts) -> None:
    free = _generate(llama.reference(torch.float64), prompts[0], 5, None)
    engine = llama.engine(torch.float64, ends=(free[-1],))
    limit = free.index(free[-1]) + 1
    (sample,) = engine.generate(prompts[:1], SamplingParams(temperature=0.0, max_tokens=limit))
    assert (sample.ids, sample.finish) == (free[:limit], "stop")


def test_one_token(llama, prompts) -> None:
    reference = llama.reference(torch.float64)
    samples = llama.engine(torch.float64, slots=2).generate(prompts, SamplingParams(temperature=0.0, max_tokens=1, n=3))
    assert [s.ids for s in samples] == [_generate(reference, p, 1, None) for p in prompts for _ in range(3)]
    assert {s.finish for s in samples} <= {"length", "stop"}
