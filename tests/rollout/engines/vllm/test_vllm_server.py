"""vLLM's own HTTP server, started by whet and used by its address."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from rollout.engines.vllm.test_vllm_process import members
from tiny_models import Tiny

from whet.errors import UserError
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.server.client import Client
from whet.rollout.engines.vllm.server import OwnServerEngine, VLLMServerEngine
from whet.rollout.engines.vllm.settings import Settings
from whet.types import Prompt

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def models(model_of: Callable[..., Tiny]) -> tuple[Tiny, Tiny]:
    return model_of("tied llama", seed=0), model_of("tied llama", seed=1)


@pytest.fixture(scope="module")
def server(settings: Settings, models: tuple[Tiny, Tiny]) -> Iterator[OwnServerEngine]:
    engine = OwnServerEngine(settings, models[0].model().config, models[0].tokenizer, frozenset({1}))
    yield engine
    engine.close()
    assert members(engine.process.pid) == []


def test_samples_are_those_of_the_weights_it_was_given(
    server: OwnServerEngine, models: tuple[Tiny, Tiny], prompts: list[Prompt], full_log_probs: Callable
) -> None:
    with pytest.raises(UserError, match="version none of this run's, the learner's 0"):
        server.generate(prompts[:1], GREEDY)
    for version, tiny in enumerate(models):
        server.load_weights(lambda tiny=tiny: folder_weights(tiny.model()), version)
        samples = server.generate(prompts, GREEDY)
        assert [sample.ids for sample in samples] == [s.ids for s in tiny.engine().generate(prompts, GREEDY)]
        assert {sample.version for sample in samples} == {version}
        (sample,) = server.generate(prompts[:1], SamplingParams(temperature=0.7, max_tokens=24))
        assert sample.log_probs == pytest.approx(full_log_probs(tiny.reference(), sample, 0.7), abs=1e-3)


def test_another_run_at_the_same_address_notices(
    server: OwnServerEngine, models: tuple[Tiny, Tiny], prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = VLLMServerEngine(server.client, models[0].tokenizer, frozenset({1}))
    try:
        other.load_weights(lambda: folder_weights(models[0].model()), 5)
        assert other.generate(prompts[:1], GREEDY)
        with pytest.raises(UserError, match="version 5, the learner's 1; it was restarted, or another run uses it"):
            server.generate(prompts[:1], GREEDY)
    finally:
        other.close()


def test_strangers_cannot_sample(server: OwnServerEngine, models: tuple[Tiny, Tiny], prompts: list[Prompt]) -> None:
    stranger = VLLMServerEngine(Client(server.client.address), models[0].tokenizer, frozenset({1}))
    try:
        with pytest.raises(UserError, match="wants its API key"):
            stranger.generate(prompts[:1], GREEDY)
    finally:
        stranger.close()


def test_a_server_that_dies_is_named(server: OwnServerEngine, prompts: list[Prompt]) -> None:
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    with pytest.raises(UserError, match=rf"the vLLM server \(pid {server.process.pid}\) was killed by SIGKILL"):
        server.generate(prompts[:1], GREEDY)
