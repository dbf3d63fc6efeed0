"""Small models that vLLM's CPU build can run (heads of 32), and an engine on one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tiny_models import MakeTiny, Tiny

from whet.model.names import folder_weights
from whet.rollout.engines.vllm.engine import VLLMEngine
from whet.rollout.engines.vllm.settings import Settings

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "head_dim": 32,
    "initializer_range": 0.2,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
}
# A head that is the embedding and one that is not: vLLM updates the two in different ways.
KINDS = {"tied llama": ("llama", True), "qwen3": ("qwen3", False)}
ENDS = frozenset({1})


@pytest.fixture(scope="session")
def model_of(tiny: MakeTiny) -> Callable[..., Tiny]:
    """model_of("qwen3", seed): a folder with a random model of that kind and its tokenizer."""

    def make(kind: str, seed: int = 0) -> Tiny:
        family, tied = KINDS[kind]
        return tiny(family, seed, tie_word_embeddings=tied, **SIZES)

    return make


@pytest.fixture(scope="session")
def settings(vllm_python: str) -> Settings:
    return Settings(python=vllm_python, max_model_len=160, max_num_seqs=16, enforce_eager=True)


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def tiny_model(model_of: Callable[..., Tiny], kind: str) -> Tiny:
    return model_of(kind)


@pytest.fixture(scope="module")
def engine(settings: Settings, tiny_model: Tiny) -> Iterator[VLLMEngine]:
    """vLLM in a child process, with the weights of `tiny_model` as version 0."""
    model = tiny_model.model()
    engine = VLLMEngine(settings, model.config, tiny_model.tokenizer, ENDS)
    try:
        engine.load_weights(lambda: folder_weights(model), 0)
        yield engine
    finally:
        engine.close()
