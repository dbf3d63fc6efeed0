"""Tiny random models of three kinds, a byte-level tokenizer, and what transformers itself says about them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tiny_models import VOCABULARY, MakeTiny, Tiny, byte_tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.types import Prompt, Sample


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    return byte_tokenizer()


@pytest.fixture(scope="session")
def llama(tiny: MakeTiny) -> Tiny:
    return tiny("llama")


@pytest.fixture(scope="session")
def prompts() -> list[Prompt]:
    """Prompts of very different lengths: 1 to 70 tokens."""
    random = torch.Generator().manual_seed(0)
    lengths = [3, 70, 1, 12, 33, 5]
    return [
        Prompt(f"row {i}", torch.randint(5, VOCABULARY, (n,), generator=random).tolist(), "")
        for i, n in enumerate(lengths)
    ]


@pytest.fixture(scope="session")
def full_log_probs() -> Callable[[PreTrainedModel, Sample, float], list[float]]:
    """Log-probs of a sample's tokens by one whole forward pass of transformers' model."""

    @torch.no_grad()
    def compute(model: PreTrainedModel, sample: Sample, temperature: float) -> list[float]:
        ids = torch.tensor([sample.prompt.ids + sample.ids])
        logits = model(ids).logits[0, len(sample.prompt.ids) - 1 : -1].double() / temperature
        return torch.log_softmax(logits, -1).gather(1, torch.tensor(sample.ids)[:, None])[:, 0].tolist()

    return compute
