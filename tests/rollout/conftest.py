"""Tiny random models of three kinds, a byte-level tokenizer, and what transformers itself says about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
)

from whet.assets.tokenizer import make_tokenizer
from whet.model.load import load_model
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt, Sample

VOCABULARY = 320  # five chunks of the sampler's 64
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.4,  # distributions that are far from flat
    "eos_token_id": None,
    "bos_token_id": None,
}
KINDS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=8),
    "mistral": MistralConfig(**SIZES, sliding_window=6),
}


@dataclass(frozen=True)
class Tiny:
    """One model folder, as whet loads it and as transformers does."""

    path: str
    tokenizer: PreTrainedTokenizerBase

    def model(self, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
        return load_model(self.path, dtype)

    def engine(
        self, dtype: torch.dtype = torch.float32, ends: tuple[int, ...] = (1,), slots: int = 64, budget: int = 8192
    ) -> NativeEngine:
        return NativeEngine(self.model(dtype), self.tokenizer, frozenset(ends), slots, budget)

    def reference(self, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
        """The same weights with transformers' own attention."""
        model = AutoModelForCausalLM.from_pretrained(self.path, dtype=dtype, attn_implementation="sdpa")
        model.generation_config = GenerationConfig()
        return model.eval()


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    return make_tokenizer(["the answer is seven", "stop here and now"] * 4, vocab_size=VOCABULARY)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerBase) -> Callable[[str], Tiny]:
    """tiny("llama"): the model folder of a kind, made once."""
    made: dict[str, Tiny] = {}

    def make(kind: str) -> Tiny:
        if kind not in made:
            path: Path = tmp_path_factory.mktemp(kind)
            torch.manual_seed(list(KINDS).index(kind))
            AutoModelForCausalLM.from_config(KINDS[kind], dtype=torch.float32).save_pretrained(path)
            made[kind] = Tiny(str(path), tokenizer)
        return made[kind]

    return make


@pytest.fixture(scope="session")
def llama(tiny: Callable[[str], Tiny]) -> Tiny:
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
