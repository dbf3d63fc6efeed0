"""The tiny random models of the suite: one builder for every family, folders of them made once a session.

Two layers with grouped queries, two vocabularies: 48 ids that are words of their own, for what only computes, and 320
tokens of bytes, for what also reads and writes text. A test that needs another size names it:
`tiny_config("llama", head_dim=32)`. Vision-language models are in model/tiny_vision.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from whet.assets.tokenizer import make_tokenizer
from whet.model.load import load_model
from whet.rollout.engines.native.engine import NativeEngine

WORDS = 48  # ids of `tiny_tokenizer`
VOCABULARY = 320  # tokens of `byte_tokenizer`: five chunks of the sampler's 64
SHAPE: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,  # far from uniform predictions
}
# What sampling is tested with: text, distributions that are far from flat, and no end token of the model's own.
WRITER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "intermediate_size": 48,
    "initializer_range": 0.4,
    "eos_token_id": None,
    "bos_token_id": None,
}
_WINDOWS = ["sliding_attention", "full_attention"]
FAMILIES: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "llama": (LlamaConfig, {}),
    "qwen2": (Qwen2Config, {"intermediate_size": 66}),  # biases; a width that four ranks cannot cut evenly
    "qwen3": (Qwen3Config, {"head_dim": 8}),  # a norm of each head
    "mistral": (MistralConfig, {"sliding_window": 6}),
    "gemma3": (Gemma3TextConfig, {"head_dim": 8, "sliding_window": 6, "layer_types": _WINDOWS}),  # norms on both sides
    "mixtral": (MixtralConfig, {"intermediate_size": 48, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": (
        Qwen3MoeConfig,
        {"head_dim": 8, "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2},
    ),
}


def tiny_config(family: str, **changes: Any) -> PretrainedConfig:
    """The config of a tiny model of a family, with some of its values replaced."""
    kind, values = FAMILIES[family]
    return kind(**SHAPE | values | changes)


def random_model(config: PretrainedConfig, seed: int, implementation: str | None = None) -> PreTrainedModel:
    """The same random fp32 model of a config, every time."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, attn_implementation=implementation, dtype=torch.float32)


def tiny_llama(implementation: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The llama that most tests of the learner use, with a head that is the embedding."""
    config = tiny_config("llama", tie_word_embeddings=True, attention_dropout=0.1)  # whet trains without dropout
    model = random_model(config, 11, implementation)
    if dtype == torch.float64:  # transformers' norms compute in fp32 whatever the weights are
        for name, module in list(model.named_modules()):
            if isinstance(module, LlamaRMSNorm):
                norm = nn.RMSNorm(config.hidden_size, eps=module.variance_epsilon)
                norm.weight = module.weight
                model.set_submodule(name, norm)
    return model.to(dtype).eval()


def tiny_model(family: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A model of a family with whet's attention; its norms and biases are random too."""
    if family == "llama":
        return tiny_llama("whet", dtype)
    model = random_model(tiny_config(family, **_heads(family)), 13, "whet")
    with torch.no_grad():
        for p in model.parameters():  # norms and biases begin as ones and zeros, which would hide mistakes
            if p.dim() == 1:
                p.add_(torch.randn(p.shape) * 0.1)
    return model.to(dtype).eval()


def _heads(family: str) -> dict[str, bool]:
    """A head that is the embedding, one that is not, and otherwise as the family has it."""
    return {"qwen2": {"tie_word_embeddings": True}, "qwen3": {"tie_word_embeddings": False}}.get(family, {})


@cache
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One word for each id of the small vocabulary."""
    words = models.WordLevel({str(i): i for i in range(WORDS)}, unk_token="0")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), eos_token="1", unk_token="0")


@cache
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level tokens with a chat template; id 1 ends a response."""
    return make_tokenizer(["the answer is seven", "stop here and now", "żółć 北京 🙂"] * 4, vocab_size=VOCABULARY)


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


MakeTiny = Callable[..., Tiny]


def folders(new_folder: Callable[[str], Path]) -> MakeTiny:
    """Return the function behind the fixture `tiny`: `tiny(family, seed, **changes)` makes each folder once."""
    made: dict[tuple[Any, ...], Tiny] = {}

    def tiny(family: str = "llama", seed: int = 0, **changes: Any) -> Tiny:
        """The folder of a random model that writes text, with its tokenizer. Tests only read it."""
        key = (family, seed, *sorted(changes.items()))
        if key not in made:
            path = new_folder(family)
            random_model(tiny_config(family, **WRITER | changes), seed).save_pretrained(path)
            byte_tokenizer().save_pretrained(path)
            made[key] = Tiny(str(path), byte_tokenizer())
        return made[key]

    return tiny
