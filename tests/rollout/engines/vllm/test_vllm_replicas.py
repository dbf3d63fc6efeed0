"""Two real vLLMs behind one engine, and weights that were thrown away to sleep."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from tiny_models import Tiny
from transformers import PreTrainedModel

from whet.errors import UserError
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.vllm.engine import VLLMEngine
from whet.rollout.engines.vllm.settings import Settings
from whet.types import Prompt

PARAMS = SamplingParams(n=3, max_tokens=12, seed=5)


@pytest.fixture(scope="module")
def model(model_of: Callable[..., Tiny]) -> PreTrainedModel:
    return model_of("tied llama").model()


@pytest.fixture(scope="module")
def pair(settings: Settings, model_of: Callable[..., Tiny], model: PreTrainedModel) -> Iterator[VLLMEngine]:
    tiny = model_of("tied llama")
    engine = VLLMEngine(replace(settings, replicas=2), model.config, tiny.tokenizer, frozenset({1}))
    try:
        engine.load_weights(lambda: folder_weights(model), 0)
        yield engine
    finally:
        engine.close()


def test_a_sample_is_the_same_whichever_vllm_writes_it(pair: VLLMEngine, prompts: list[Prompt]) -> None:
    ids = [10 * i for i in range(len(prompts))]
    samples = pair.generate(prompts, PARAMS, ids)
    assert [(s.prompt.uid, s.index) for s in samples] == [(p.uid, i) for p in prompts for i in range(3)]
    for shift in (1, 2):  # alone, a prompt goes to each of the two in turn
        for at, prompt in enumerate(prompts[:shift]):
            alone = pair.generate([prompt], PARAMS, [ids[at]])
            assert [s.ids for s in alone] == [s.ids for s in samples[3 * at : 3 * at + 3]]
    assert len(pair._vllm.processes) == 2


def test_a_stream_of_several_prompts_comes_from_both(pair: VLLMEngine, prompts: list[Prompt]) -> None:
    written: list[list[int]] = [[] for _ in range(3 * len(prompts))]

    async def read() -> None:
        async for piece in pair.stream(prompts, PARAMS):
            written[3 * piece.prompt + piece.index] += piece.ids

    asyncio.run(read())
    assert written == [sample.ids for sample in pair.generate(prompts, PARAMS)]


def test_a_vllm_that_slept_without_weights_is_given_the_same_again(
    pair: VLLMEngine, model: PreTrainedModel, prompts: list[Prompt]
) -> None:
    read = 0

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        nonlocal read
        read += 1
        yield from folder_weights(model)

    pair.load_weights(weights, 3)
    before = [sample.ids for sample in pair.generate(prompts, PARAMS)]
    pair._weights = pair._source  # what a GPU's sleep leaves; a CPU has none
    assert [sample.ids for sample in pair.generate(prompts, PARAMS)] == before
    assert read == 2
    assert {sample.version for sample in pair.generate(prompts, PARAMS)} == {3}
    assert read == 2

    pair._weights = pair._source
    with torch.no_grad():
        next(model.parameters()).add_(0.1)
    with pytest.raises(RuntimeError, match="no longer those of version 3"):
        pair.generate(prompts, PARAMS)
    with pytest.raises(RuntimeError, match="holds version None"):
        pair.generate(prompts, PARAMS)
    pair.load_weights(weights, 4)
    assert {sample.version for sample in pair.generate(prompts, PARAMS)} == {4}


def test_one_that_dies_is_named_and_none_is_left(pair: VLLMEngine, prompts: list[Prompt]) -> None:
    first, second = pair._vllm.processes
    os.kill(second.pid, signal.SIGKILL)
    with pytest.raises(UserError, match=rf"runs vLLM \(pid {second.pid}\) was killed by SIGKILL"):
        pair.generate(prompts, PARAMS)
    pair.close()
    assert first.poll() is not None
