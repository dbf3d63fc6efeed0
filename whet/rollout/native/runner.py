"""The model's forward passes for sampling: prefill prompts, decode one token for every running sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.model.load import head_of, hidden_states
from whet.rollout.native.attention import DecodeAttention, PrefillAttention
from whet.rollout.native.cache import SlotCache
from whet.rollout.native.sampler import sample
from whet.rollout.native.sequence import Prefilled, Sequence
from whet.rollout.uniforms import uniforms


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token for each of some sequences."""

    tokens: list[int]
    log_probs: list[float]


class ModelRunner:
    """Runs the learner's module as it is: no copy of the weights, no second model definition."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.device = model.device
        self.vocab_size = cast(nn.Embedding, model.get_input_embeddings()).num_embeddings
        self.cache = SlotCache(config.num_hidden_layers, heads, head_dim, model.dtype, self.device)

    def prefill(self, prompts: list[list[int]]) -> list[Prefilled]:
        """Keys, values and first logits of each prompt, all prompts in one packed row."""
        lengths = [len(ids) for ids in prompts]
        attention = PrefillAttention(lengths, self.device)
        ids = torch.tensor([i for prompt in prompts for i in prompt], device=self.device)
        positions = torch.cat([torch.arange(n, device=self.device) for n in lengths])
        hidden_NH = hidden_states(self.model, ids, positions, attention)
        ends = torch.tensor(lengths, device=self.device).cumsum(0)
        logits = head_of(self.model).logits(hidden_NH[ends - 1])
        layers = [attention.layers[i] for i in sorted(attention.layers)]
        pieces = zip(*(layer.split(lengths, dim=1) for layer in layers))
        return [Prefilled(torch.stack(kv), row) for kv, row in zip(pieces, logits)]

    def decode(self, running: list[Sequence]) -> list[Drawn]:
        """The next token of every running sequence, or the next few; slot i is entry i of each."""
        lengths = [s.length for s in running]
        self.cache.reserve(len(running), max(lengths))
        positions = torch.tensor(lengths, device=self.device) - 1
        ids = torch.tensor([s.ids[-1] for s in running], device=self.device)
        attention = DecodeAttention(self.cache, positions, max(lengths))
        hidden_BH = hidden_states(self.model, ids, positions, attention)
        return [self.draw(running, head_of(self.model).logits(hidden_BH))]

    def draw(self, sequences: list[Sequence], logits_BV: Tensor) -> Drawn:
        """Sample one token of each sequence from its logits."""
        keys = torch.tensor([s.key for s in sequences], device=self.device)
        written = torch.tensor([len(s.ids) for s in sequences], device=self.device)
        tokens, log_probs = sample(logits_BV, [s.request.params for s in sequences], uniforms(keys, written))
        return Drawn(tokens.tolist(), log_probs.tolist())

    def release(self) -> None:
        """Give back the memory held between rollouts."""
        self.cache.release()
