"""Small models and samples for the tests of the learner."""

from __future__ import annotations

import random

import torch
from tokenizers import Tokenizer, models
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from whet.types import Prompt, Sample, segments_of

VOCABULARY = 48


def sample(prompt: Prompt, ids: list[int], mask: list[int] | None = None, score: float = 0.0, group: int = 0) -> Sample:
    """A finished response with made-up log-probs of the sampler."""
    log_probs = [-1.0 - 0.1 * (i % 7) for i in range(len(ids))]
    made = Sample(prompt, segments_of(ids, mask or [1] * len(ids)), "stop", group=group, scores={"overall": score})
    set_log_probs(made, log_probs)
    return made


def set_log_probs(sample: Sample, log_probs: list[float]) -> None:
    """Replace the sampler's log-probs."""
    rest = iter(log_probs)
    for segment in sample.segments:
        segment.log_probs = [next(rest) for _ in segment.ids]


def batch(seed: int = 0, prompts: int = 4, n: int = 3) -> list[Sample]:
    """n samples of each of a few prompts, ragged: some responses of one token, some with tool tokens inside."""
    rng = random.Random(seed)
    samples = []
    for p in range(prompts):
        prompt = Prompt(f"row:{p}", [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 9))], "")
        for i in range(n):
            length = 1 if (p + i) % 4 == 3 else rng.randint(2, 12)
            mask = [int(t < 2 or t % 3 != 2) for t in range(length)] if i == 1 else [1] * length
            ids = [rng.randrange(VOCABULARY) for _ in range(length)]
            samples.append(sample(prompt, ids, mask, score=rng.random(), group=p))
    return samples


def tiny_llama(implementation: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The same random two-layer model with grouped queries, every time."""
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,  # far from uniform predictions
        tie_word_embeddings=True,
        attention_dropout=0.1,  # whet trains without
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation, dtype=torch.float32)
    if dtype == torch.float64:  # transformers' norms compute in fp32 whatever the weights are
        for name, module in list(model.named_modules()):
            if isinstance(module, LlamaRMSNorm):
                norm = nn.RMSNorm(config.hidden_size, eps=module.variance_epsilon)
                norm.weight = module.weight
                model.set_submodule(name, norm)
    return model.to(dtype).eval()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One word for each id."""
    words = models.WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), eos_token="1", unk_token="0")
