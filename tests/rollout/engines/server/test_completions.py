"""Servers with OpenAI's completions: TensorRT-LLM's against a stand-in of its API with a real model behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rollout.engines.server.stand_in import TrtllmStandIn

from whet.errors import UserError
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.rollout.engines.openai.engine import OpenAIEngine
from whet.rollout.engines.server.check import check_server
from whet.rollout.engines.server.client import Client
from whet.rollout.engines.sglang.engine import reports_version
from whet.rollout.engines.trtllm.engine import TrtllmEngine

ENDS = tuple(range(16, 320, 24))


@pytest.fixture
def server(llama) -> Iterator[TrtllmStandIn]:
    stand_in = TrtllmStandIn(llama.model(), llama.tokenizer)
    yield stand_in
    stand_in.close()


@pytest.fixture
def engine(server, llama) -> Iterator[TrtllmEngine]:
    made = TrtllmEngine(Client(server.address, None, 20.0), llama.tokenizer, frozenset(ENDS))
    made.load_weights(lambda: iter(()), 0)
    yield made
    made.close()


def test_samples_carry_ids_and_log_probs(engine, llama, prompts, full_log_probs) -> None:
    samples = engine.generate(prompts, SamplingParams(n=2, max_tokens=16, seed=4))
    assert [(s.prompt.uid, s.index) for s in samples] == [(p.uid, i) for p in prompts for i in range(2)]
    assert {s.finish for s in samples} == {"stop", "length"}
    reference = llama.reference()
    for sample in samples:
        assert sample.log_probs == pytest.approx(full_log_probs(reference, sample, 1.0), abs=1e-4)


def test_stop_strings_that_the_server_does_not_see_still_end_responses(engine, llama, prompts) -> None:
    native = NativeEngine(llama.model(), llama.tokenizer, frozenset(ENDS))
    free = native.generate(prompts, SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True))
    stops = tuple(llama.tokenizer.decode(s.ids)[8:10] for s in free[:3])
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True, stop=stops)
    expected = native.generate(prompts, params)
    assert [s.finish for s in expected].count("stop") >= 3
    samples = engine.generate(prompts, params)
    assert [(s.ids, s.finish) for s in samples] == [(s.ids, s.finish) for s in expected]
    assert all(len(s.log_probs) == len(s.ids) == len(s.mask) for s in samples)


def test_new_weights_are_refused(engine) -> None:
    with pytest.raises(UserError, match=r"worker\.rollout\.name=trtllm.*version 1.*val_only"):
        engine.load_weights(lambda: iter(()), 1)
    assert engine.version == 0


def test_a_server_that_came_back_with_another_model_is_refused(engine, server, prompts) -> None:
    engine.generate(prompts[:1], SamplingParams(max_tokens=2))
    server.served = "other"
    with pytest.raises(UserError, match="now serves 'other', at first it was 'tiny'"):
        engine.generate(prompts[:1], SamplingParams(max_tokens=2))


def test_a_server_without_token_ids_is_refused(engine, server, prompts) -> None:
    server.with_ids = False
    with pytest.raises(UserError, match="no token ids"):
        engine.generate(prompts[:1], SamplingParams(max_tokens=2))


def test_fields_that_the_server_does_not_know_are_its_own_words(server, llama, prompts) -> None:
    engine = OpenAIEngine(Client(server.address, None, 20.0), llama.tokenizer, frozenset(ENDS))
    with pytest.raises(UserError, match=r"answered 400: .*not permitted.*return_token_ids"):
        engine.generate(prompts[:1], SamplingParams(max_tokens=2))
    engine.close()


def test_the_server_is_looked_at_before_work(server) -> None:
    check_server(server.address, None)
    with pytest.raises(UserError, match="no SGLang server"):
        check_server(server.address, None, reports_version)
