"""whet's attention hook gives what transformers' own attention gives, for several families of models."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from whet.model.attention import PackedAttention, Segment
from whet.model.load import head_of, hidden_states

_SIZE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
FAMILIES: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**_SIZE),
    "llama-all-heads": LlamaConfig(**_SIZE | {"num_key_value_heads": 4}),
    "qwen2": Qwen2Config(**_SIZE),
    "qwen2-window": Qwen2Config(**_SIZE, use_sliding_window=True, sliding_window=4, layer_types=_MIXED),
    "qwen3": Qwen3Config(**_SIZE, head_dim=16),
    "mistral": MistralConfig(**_SIZE, sliding_window=None),
    "mistral-window": MistralConfig(**_SIZE, sliding_window=3),
    "gemma": GemmaConfig(**_SIZE, head_dim=8),
    "gemma3": Gemma3TextConfig(
        **_SIZE, head_dim=8, sliding_window=4, layer_types=_MIXED, query_pre_attn_scalar=20, final_logit_softcapping=3.0
    ),
    "gpt2": GPT2Config(
        vocab_size=40, n_embd=32, n_layer=3, n_head=4, initializer_range=0.3, bos_token_id=1, eos_token_id=2
    ),
}


def _models(name: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The same random weights behind whet's attention and behind sdpa."""
    pair = []
    for implementation in ("whet", "sdpa"):
        torch.manual_seed(1)
        config = type(FAMILIES[name])(**FAMILIES[name].to_dict())
        model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
        for parameter in model.parameters():  # biases and norms start at 0 and 1, which would hide them
            parameter.data += 0.1 * torch.randn(parameter.shape)
        pair.append(model)
    return pair[0], pair[1]


def _tokens(length: int, seed: int) -> Tensor:
    return torch.randint(40, (length,), generator=torch.Generator().manual_seed(seed))


def _alone(model: PreTrainedModel, ids: Tensor) -> tuple[Tensor, Tensor]:
    output = model(ids.unsqueeze(0), output_hidden_states=True, use_cache=False)
    return output.hidden_states[-1][0], output.logits[0]


@torch.no_grad()
@pytest.mark.parametrize("lengths", [[7], [1], [5, 5], [11, 2, 7, 1, 30, 8], [40, 1, 1, 1]])
@pytest.mark.parametrize("name", FAMILIES)
def test_segments_do_not_see_each_other(name: str, lengths: list[int]) -> None:
    ours, plain = _models(name)
    rows = [_tokens(length, seed) for seed, length in enumerate(lengths)]
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    packed = PackedAttention([Segment(s, n) for s, n in zip(starts, lengths)])
    positions = torch.cat([torch.arange(n) for n in lengths])
    hidden = hidden_states(ours, torch.cat(rows), positions, packed)
    logits = head_of(ours).logits(hidden)
    for start, row in zip(starts, rows):
        expected_hidden, expected_logits = _alone(plain, row)
        torch.testing.assert_close(hidden[start : start + len(row)], expected_hidden, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(logits[start : start + len(row)], expected_logits, atol=2e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(
    "groups", [[(6, [3])], [(6, [3, 9, 1]), (2, [5, 5])], [(1, [1, 12]), (25, [2, 4, 4]), (3, [30])]]
)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_shared_prefix_is_as_good_as_a_copy(name: str, groups: list[tuple[int, list[int]]]) -> None:
    ours, plain = _models(name)
    ids, positions, segments, expected = [], [], [], []
    total = 0

    def lay(tokens: Tensor, first: int, prefix: tuple[int, int] = (0, 0)) -> None:
        nonlocal total
        segments.append(Segment(total, len(tokens), *prefix))
        ids.append(tokens)
        positions.append(torch.arange(first, first + len(tokens)))
        total += len(tokens)

    for g, (prefix_length, lengths) in enumerate(groups):
        prefix, start = _tokens(prefix_length, 100 + g), total
        lay(prefix, 0)
        expected.append(_alone(plain, prefix)[0])
        for i, length in enumerate(lengths):
            response = _tokens(length, 10 * g + i)
            lay(response, prefix_length, (start, prefix_length))
            expected.append(_alone(plain, torch.cat([prefix, response]))[0][prefix_length:])
    hidden = hidden_states(ours, torch.cat(ids), torch.cat(positions), PackedAttention(segments))
    torch.testing.assert_close(hidden, torch.cat(expected), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["llama", "mistral-window", "gemma3"])
def test_gradients_of_every_weight(name: str) -> None:
    ours, plain = _models(name)
    prefix, rows = _tokens(5, 1), [_tokens(4, 2), _tokens(9, 3)]
    segments = [Segment(0, 5), Segment(5, 4, 0, 5), Segment(9, 9, 0, 5)]
    positions = torch.cat([torch.arange(5), torch.arange(5, 9), torch.arange(5, 14)])
    hidden = hidden_states(ours, torch.cat([prefix, *rows]), positions, PackedAttention(segments))
    (head_of(ours).logits(hidden[5:]).log_softmax(-1)[:, 7]).sum().backward()
    for row in rows:
        logits = plain(torch.cat([prefix, row]).unsqueeze(0), use_cache=False).logits[0, 5:]
        logits.log_softmax(-1)[:, 7].sum().backward()
    for (label, a), b in zip(ours.named_parameters(), plain.parameters(), strict=True):
        assert float((a.grad - b.grad).norm()) <= 1e-4 * float(b.grad.norm()), label
