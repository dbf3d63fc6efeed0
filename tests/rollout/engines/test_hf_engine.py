"""The reference engine: `generate` of transformers behind the same interface."""

from __future__ import annotations

import asyncio

import pytest
import torch
from transformers import GenerationConfig

from whet.model import attention
from whet.model.attention import PackedAttention, Segment
from whet.model.load import hidden_states
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.hf.engine import HFEngine
from whet.types import Prompt

ENDS = tuple(range(16, 320, 24))


def _engine(tiny, dtype=torch.float32, ends=ENDS, batch: int = 64) -> HFEngine:
    return HFEngine(tiny.model(dtype), tiny.tokenizer, frozenset(ends), batch)


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_log_probs_match_a_full_forward_pass(tiny, prompts, full_log_probs, kind) -> None:
    model = tiny(kind)
    ended: list[int] = []
    samples = _engine(model, batch=5).generate(
        prompts, SamplingParams(n=2, temperature=0.7, max_tokens=16, seed=4), progress=ended.append
    )
    assert [(s.prompt.uid, s.index) for s in samples] == [(p.uid, i) for p in prompts for i in range(2)]
    assert sum(ended) == len(samples)
    assert {s.finish for s in samples} == {"stop", "length"}
    reference = model.reference()
    for sample in samples:
        assert (sample.ids[-1] in ENDS) == (sample.finish == "stop")
        assert not set(sample.ids[:-1]) & set(ENDS)
        assert sample.log_probs == pytest.approx(full_log_probs(reference, sample, 0.7), abs=1e-4)


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_greedy_is_what_the_native_engine_writes(llama, prompts, ignore_eos) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=ignore_eos)
    native = llama.engine(torch.float64, ends=ENDS).generate(prompts, params)
    plain = _engine(llama, torch.float64).generate(prompts, params)
    assert [(s.ids, s.finish) for s in plain] == [(s.ids, s.finish) for s in native]


def test_stop_strings_end_responses_where_the_native_engine_ends_them(llama, prompts) -> None:
    free = llama.engine(torch.float64, ends=()).generate(prompts, SamplingParams(temperature=0.0, max_tokens=30))
    stops = tuple(llama.tokenizer.decode(s.ids)[8:10] for s in free[:3])
    params = SamplingParams(temperature=0.0, max_tokens=30, stop=stops)
    native = llama.engine(torch.float64, ends=()).generate(prompts, params)
    plain = _engine(llama, torch.float64, ends=()).generate(prompts, params)
    assert [(s.ids, s.finish) for s in plain] == [(s.ids, s.finish) for s in native]
    assert [s.finish for s in plain].count("stop") >= 3


def test_a_stop_string_that_begins_in_the_prompt_is_not_one(llama) -> None:
    tokenizer = llama.tokenizer
    engine = _engine(llama, torch.float64, ends=())
    params = SamplingParams(temperature=0.0, max_tokens=12)
    other = Prompt("other", tokenizer.encode("the answer is"), "")
    prompt = Prompt("row", tokenizer.encode("seven"), "")
    free = engine.generate([prompt, other], params)
    stop = "n" + tokenizer.decode(free[0].ids)[:1]
    stopped = engine.generate([prompt, other], SamplingParams(temperature=0.0, max_tokens=12, stop=(stop,)))
    ends = [stop in tokenizer.decode(s.ids) for s in free]
    assert not ends[0]
    assert stopped[0].ids == free[0].ids


def test_the_folders_own_sampling_defaults_do_not_leak_in(llama, prompts) -> None:
    params = SamplingParams(n=2, max_tokens=12, seed=8)
    engine = _engine(llama)
    expected = [s.ids for s in engine.generate(prompts, params)]
    defaults = GenerationConfig(repetition_penalty=5.0, eos_token_id=[7], top_k=2, do_sample=True)
    engine._model.generation_config = defaults
    assert [s.ids for s in engine.generate(prompts, params)] == expected
    assert engine._model.generation_config is defaults


def test_seeds_repeat_and_leave_torchs_generator_alone(llama, prompts) -> None:
    engine = _engine(llama)
    before = torch.get_rng_state()
    first = engine.generate(prompts, SamplingParams(max_tokens=10, seed=1))
    assert [s.ids for s in engine.generate(prompts, SamplingParams(max_tokens=10, seed=1))] == [s.ids for s in first]
    assert [s.ids for s in engine.generate(prompts, SamplingParams(max_tokens=10, seed=2))] != [s.ids for s in first]
    assert torch.equal(torch.get_rng_state(), before)


def test_the_model_goes_back_to_whets_attention_also_after_an_error(llama, prompts) -> None:
    engine = _engine(llama)
    model = engine._model

    def train() -> None:
        ids = torch.tensor(prompts[3].ids)
        hidden_states(model, ids, torch.arange(len(ids)), PackedAttention([Segment(0, len(ids))])).sum().backward()

    engine.generate(prompts, SamplingParams(max_tokens=4))
    assert model.config._attn_implementation == attention.NAME
    train()
    with pytest.raises(IndexError):
        engine.generate([Prompt("bad", [100_000], "")], SamplingParams(max_tokens=4))
    assert model.config._attn_implementation == attention.NAME
    train()


def test_one_call_at_a_time(llama, prompts) -> None:
    engine = _engine(llama)
    engine.version = 3
    params = SamplingParams(n=2, max_tokens=6, seed=5)
    samples = asyncio.run(engine.sample(prompts[0], params, 40))
    assert [s.ids for s in samples] == [s.ids for s in engine.generate(prompts[:1], params, [40])]
    assert {s.version for s in samples} == {3}
    engine.release()
