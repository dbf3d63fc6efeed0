"""Small random models of several families, whose parts differ: norms of heads, windows, biases, experts."""

from __future__ import annotations

from typing import Any

import torch
from learn.samples import VOCABULARY, tiny_llama
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    MixtralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
}


def config_of(family: str) -> PretrainedConfig:
    """The config of a tiny model."""
    if family == "qwen2":  # biases; a width that four ranks cannot cut evenly
        return Qwen2Config(**_SHAPE, intermediate_size=66, tie_word_embeddings=True)
    if family == "qwen3":  # a norm of each head
        return Qwen3Config(**_SHAPE, intermediate_size=64, head_dim=8, tie_word_embeddings=False)
    if family == "gemma3":  # windows, norms on both sides
        windows = ["sliding_attention", "full_attention"]
        return Gemma3TextConfig(**_SHAPE, intermediate_size=64, head_dim=8, sliding_window=6, layer_types=windows)
    if family == "mixtral":
        return MixtralConfig(**_SHAPE, intermediate_size=48, num_local_experts=4, num_experts_per_tok=2)
    assert family == "qwen3_moe", family
    return Qwen3MoeConfig(
        **_SHAPE, intermediate_size=64, head_dim=8, moe_intermediate_size=24, num_experts=4, num_experts_per_tok=2
    )


def tiny_model(family: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The same random model of a family, every time."""
    if family == "llama":
        return tiny_llama("whet", dtype)
    torch.manual_seed(13)
    model = AutoModelForCausalLM.from_config(config_of(family), attn_implementation="whet", dtype=torch.float32)
    with torch.no_grad():
        for p in model.parameters():  # norms and biases begin as ones and zeros, which would hide mistakes
            if p.dim() == 1:
                p.add_(torch.randn(p.shape) * 0.1)
    return model.to(dtype).eval()
