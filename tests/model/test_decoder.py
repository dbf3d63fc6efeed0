"""The fused decoder against the model's own modules: hidden states, gradients, and decoding over pages."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

pytest.importorskip("triton", reason="the fused decoder is made of triton kernels")

from whet.config.schema.model import LoraConfig
from whet.learn import activations
from whet.model import attention
from whet.model.attention import packed_attention_for
from whet.model.fused import decoder_of, fuse, unfuse
from whet.model.load import head_of, hidden_states
from whet.model.pass_modes import OFFLOADING

pytestmark = [pytest.mark.usefixtures("kernels_everywhere"), pytest.mark.early]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
FEW_HEADS = {"num_attention_heads": 3, "num_key_value_heads": 1}  # the interpreter takes its time for each
FUSED: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama with biases": LlamaConfig(**SIZES, attention_bias=True),
    "mistral with a window": MistralConfig(**SIZES, sliding_window=5),
    "qwen2": Qwen2Config(
        **{k: v for k, v in SIZES.items() if k != "head_dim"} | {"num_attention_heads": 3, "num_key_value_heads": 1}
    ),
    "qwen3": Qwen3Config(**SIZES),
    "gemma": GemmaConfig(**SIZES),
    "gemma3": Gemma3TextConfig(**SIZES, sliding_window=6, layer_types=["sliding_attention", "full_attention"]),
}
OTHERS: dict[str, PretrainedConfig] = {
    "olmo2, whose norms stand elsewhere": Olmo2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}),
    "smollm3, some of whose layers have no positions": SmolLM3Config(**SIZES | {"no_rope_layers": [1, 0]}),
}


def _model(config: PretrainedConfig) -> PreTrainedModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention.NAME)
    for parameter in model.parameters():  # norms start at one or zero, biases at zero: the test would not see them
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, parameter.mean().item(), 0.3)
    return model.to(DEVICE).eval()


def _row(prompt: int, first: int, second: int, alone: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """A prompt with two responses, then a lone sequence, of so many tokens each."""
    ends = np.cumsum([prompt, first, second, alone])
    segments = np.array(
        [(0, prompt, 0, 0), (prompt, first, 0, prompt), (ends[1], second, 0, prompt), (ends[2], alone, 0, 0)]
    )
    positions = [np.arange(prompt), *(prompt + np.arange(n) for n in (first, second)), np.arange(alone)]
    ids = torch.randint(1, 64, (ends[3],), generator=torch.Generator().manual_seed(1))
    return ids.to(DEVICE), torch.from_numpy(np.concatenate(positions)).to(DEVICE), segments


def _run(model: PreTrainedModel, lengths: tuple[int, ...]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    ids, positions, segments = _row(*lengths)
    hidden = hidden_states(model, ids, positions, packed_attention_for(segments, DEVICE))
    weight = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    (hidden * weight).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return hidden.detach(), gradients


def _slow_but(quick: bool) -> list[pytest.MarkDecorator]:
    """The interpreter takes about ten seconds for a case: without a GPU most of them wait for `make test-all`."""
    return [] if quick or DEVICE == "cuda" else [pytest.mark.slow]


QUICK = ("llama", True)
CASES = [
    pytest.param(name, recompute, marks=_slow_but((name, recompute) == QUICK))
    for name in FUSED
    for recompute in (False, True)
]


@pytest.mark.parametrize(("name", "recompute"), CASES)
def test_hidden_states_and_gradients_are_those_of_the_modules(name: str, recompute: bool) -> None:
    is_quick = (name, recompute) == QUICK and DEVICE == "cpu"
    model = _model(LlamaConfig(**SIZES | FEW_HEADS) if is_quick else FUSED[name])
    lengths = (3, 4, 2, 5) if is_quick else (7, 9, 3, 20)
    expected, expected_gradients = _run(model, lengths)
    assert fuse(model)
    assert decoder_of(model) is not None
    if recompute:
        model.gradient_checkpointing_enable()
    model.train()
    hidden, gradients = _run(model, lengths)
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-4)
    assert gradients.keys() == expected_gradients.keys()
    for parameter, gradient in gradients.items():
        scale = expected_gradients[parameter].abs().max()
        torch.testing.assert_close(gradient / scale, expected_gradients[parameter] / scale, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [pytest.param(each, marks=_slow_but(False)) for each in ("qwen3", "gemma3")])
def test_offloaded_inputs_of_layers_leave_every_bit_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(FUSED[name])
    assert fuse(model)
    model.gradient_checkpointing_enable()
    model.train()
    expected, expected_gradients = _run(model, (3, 4, 2, 5))
    monkeypatch.setattr(activations, "movable", lambda device: True)
    monkeypatch.setattr(activations, "_LEAST", 1)
    activations.set_activation_offload(model, True)
    hidden, gradients = _run(model, (3, 4, 2, 5))
    assert torch.equal(hidden, expected)
    assert gradients.keys() == expected_gradients.keys()
    assert all(torch.equal(gradients[each], gradient) for each, gradient in expected_gradients.items())
    memory = OFFLOADING[model].__self__.memory  # type: ignore[attr-defined]
    assert memory.made == 2 * SIZES["num_hidden_layers"] - 1  # two streams into every layer but the first, and no more
    assert memory.used == 0


@pytest.mark.skipif(find_spec("peft") is None, reason="adapters are PEFT's")
@pytest.mark.parametrize("targets", ["all-linear", "q_proj,down_proj"])
def test_adapters_give_the_hidden_states_and_gradients_of_their_modules(targets: str) -> None:
    from whet.model.lora import adapters_off, add_adapters

    model, lengths = _model(Qwen3Config(**SIZES | FEW_HEADS | {"num_hidden_layers": 1})), (3, 4, 2, 5)
    add_adapters(model, LoraConfig(rank=4, alpha=8, target_modules=targets), "base", seed=0)
    assert decoder_of(model) is not None
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    hidden, gradients = _run(model, lengths)
    with adapters_off(model), torch.no_grad():
        ids, positions, segments = _row(*lengths)
        plain = hidden_states(model, ids, positions, packed_attention_for(segments, DEVICE))
    unfuse(model)
    expected, expected_gradients = _run(model, lengths)
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain, hidden, atol=1e-2)
    assert gradients.keys() == expected_gradients.keys()
    assert all("lora_" in name for name in gradients)
    for parameter, gradient in gradients.items():
        scale = expected_gradients[parameter].abs().max()
        torch.testing.assert_close(gradient / scale, expected_gradients[parameter] / scale, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", OTHERS)
def test_another_structure_is_left_to_its_modules(name: str) -> None:
    model = _model(OTHERS[name])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert not fuse(model)
    assert decoder_of(model) is None
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", [pytest.param(n, marks=_slow_but(n == "gemma3")) for n in FUSED])
@torch.no_grad()
def test_decoding_over_pages_gives_the_same_as_a_whole_pass(name: str) -> None:
    from whet.model.paged import PagedAttention

    T = 9
    model = _model(FUSED[name])
    if name == "gemma3" and DEVICE == "cpu":  # the quick one: past its window, and onto a second page
        T = 5
        layers = {"sliding_window": 3, "layer_types": FUSED[name].layer_types}
        model = _model(Gemma3TextConfig(**SIZES | FEW_HEADS | layers))
    ids = torch.randint(1, 64, (2, T), generator=torch.Generator().manual_seed(3)).to(DEVICE)
    whole = packed_attention_for(np.array([(0, T, 0, 0), (T, T, 0, 0)]), DEVICE)
    positions = torch.arange(T, device=DEVICE)
    expected = head_of(model).logits(hidden_states(model, ids.flatten(), positions.repeat(2), whole)).view(2, T, -1)
    assert fuse(model)
    config = model.config
    cache = torch.zeros(config.num_hidden_layers, 2, 8, config.num_key_value_heads, 4, 16, device=DEVICE)
    table = torch.tensor([[1, 5, 2], [7, 3, 4]], dtype=torch.int32, device=DEVICE)
    for t in range(T):
        slots = table[:, t // 4].long() * 4 + t % 4
        lengths = torch.full((2,), t + 1, dtype=torch.int32, device=DEVICE)
        how = PagedAttention(cache, table, slots, lengths)
        logits = head_of(model).logits(hidden_states(model, ids[:, t].contiguous(), positions[t].repeat(2), how))
        torch.testing.assert_close(logits, expected[:, t], rtol=1e-3, atol=1e-3)
