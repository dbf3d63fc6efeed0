"""Tiny random reward models of every kind, in folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny_models import SHAPE, VOCABULARY, byte_tokenizer
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from whet.assets.tokenizer import make_tokenizer

KINDS = {
    "sequence": LlamaForSequenceClassification,
    "token": LlamaForTokenClassification,
    "causal": LlamaForCausalLM,
}
OTHER_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content.strip() }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def other_tokenizer() -> PreTrainedTokenizerBase:
    """A tokenizer with other tokens, and another chat template, than the policy's."""
    tokenizer = make_tokenizer(["what is good and what is bad", "one two three four five six seven"] * 4, 310)
    tokenizer.chat_template = OTHER_TEMPLATE
    return tokenizer


def reward_model(
    kind: str, folder: Path, tokenizer: PreTrainedTokenizerBase | None = None, labels: int = 1, seed: int = 0
) -> PreTrainedModel:
    """Make a model and save it; returns it as transformers has it."""
    torch.manual_seed(seed)
    if kind == "encoder":
        config: Any = BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_labels=labels,
            initializer_range=0.2,
            max_position_embeddings=128,
        )
        model: Any = BertForSequenceClassification(config)
    else:
        extra = {} if kind == "causal" else {"num_labels": labels}
        model = KINDS[kind](LlamaConfig(**SHAPE | {"vocab_size": VOCABULARY, "max_position_embeddings": 256} | extra))
    model.eval().save_pretrained(folder)
    (tokenizer or byte_tokenizer()).save_pretrained(folder)
    return model
