"""An SGLang stand-in, the learner's weights, and the engine between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from rollout.engines.server.stand_in import SGLangStandIn
from transformers import PreTrainedModel

from whet.model.names import folder_weights
from whet.rollout.engines.server.client import Client
from whet.rollout.engines.sglang.engine import SGLangEngine

ENDS = tuple(range(16, 320, 24))


@pytest.fixture
def ends() -> tuple[int, ...]:
    """End tokens that are often drawn."""
    return ENDS


@pytest.fixture
def open_engine(llama, policy) -> Callable[..., SGLangEngine]:
    """Engines for a server, with the options that a test is about."""

    def make(server: SGLangStandIn, timeout: float = 20.0, **options) -> SGLangEngine:
        client = Client(server.address, None, timeout)
        return SGLangEngine(client, llama.tokenizer, frozenset(ENDS), options.pop("config", policy.config), **options)

    return make


@pytest.fixture
def server(llama) -> Iterator[SGLangStandIn]:
    stand_in = SGLangStandIn(llama.model(), llama.tokenizer)
    yield stand_in
    stand_in.close()


@pytest.fixture
def policy(llama) -> PreTrainedModel:
    """The learner's weights, which are not those that the server was started with."""
    model = llama.model()
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model


@pytest.fixture
def engine(server, policy, open_engine, tmp_path) -> Iterator[SGLangEngine]:
    made = open_engine(server, folder=tmp_path)
    made.load_weights(lambda: folder_weights(policy), 3)
    yield made
    made.close()
