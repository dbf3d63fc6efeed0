"""The fused halves of a decoder layer against transformers' own layers, values and every gradient."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from kernels.conftest import DEVICE
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import Gemma3TextConfig, LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config
from transformers.models.gemma3.modeling_gemma3 import Gemma3DecoderLayer, Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, apply_rotary_pos_emb
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

pytest.importorskip("triton")

from whet.model import block_gradients
from whet.model.blocks import (
    Norm,
    QKNorm,
    attention_input,
    attention_input_to_pages,
    final_norm,
    rms_norm,
)
from whet.model.feed_forward import feed_forward
from whet.model.weights import lay_adjacent

N, H, D, HEADS, KV = 7, 48, 16, 3, 1
SIZES = {
    "hidden_size": H,
    "intermediate_size": 40,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "head_dim": D,
    "num_hidden_layers": 1,
    "vocab_size": 32,
}
LAYERS: dict[str, tuple[type[nn.Module], PretrainedConfig]] = {
    "llama": (LlamaDecoderLayer, LlamaConfig(**SIZES)),
    "qwen2": (Qwen2DecoderLayer, Qwen2Config(**SIZES)),
    "qwen3": (Qwen3DecoderLayer, Qwen3Config(**SIZES)),
    "gemma3": (Gemma3DecoderLayer, Gemma3TextConfig(**SIZES)),
}


def _random(*shape: int, seed: int, grad: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE).requires_grad_(grad)


def _layer(name: str) -> nn.Module:
    """A layer with weights of ordinary size everywhere, norms and biases too."""
    kind, config = LAYERS[name]
    layer = kind(config, 0).to(DEVICE)
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(_random(*parameter.shape, seed=seed) * (0.2 if parameter.dim() > 1 else 0.5))
    return layer


def _norm(module: nn.Module) -> Norm:
    gemma = isinstance(module, Gemma3RMSNorm)
    return Norm(module.weight, module.eps if gemma else module.variance_epsilon, float(gemma))


def _qk_norm(attention: nn.Module) -> QKNorm | None:
    if not hasattr(attention, "q_norm"):
        return None
    norm = _norm(attention.q_norm)
    return QKNorm(norm.weight, attention.k_norm.weight, norm.eps, norm.offset)


def _rope() -> tuple[Tensor, Tensor]:
    angles = torch.arange(N)[:, None] * 3 + torch.arange(D // 2) * 0.7
    both = torch.cat([angles, angles], dim=1)
    return both.cos().to(DEVICE), both.sin().to(DEVICE)


def _projections(attention: nn.Module) -> list[nn.Linear]:
    return [attention.q_proj, attention.k_proj, attention.v_proj]


def _fused_input(layer: nn.Module, delta: Tensor, residual: Tensor | None) -> tuple[Tensor, ...]:
    linears = _projections(layer.self_attn)
    biases = None if linears[0].bias is None else tuple(linear.bias for linear in linears)
    weights = tuple(linear.weight for linear in linears)
    norm, qk_norm = _norm(layer.input_layernorm), _qk_norm(layer.self_attn)
    return attention_input(delta, residual, norm, weights, biases, _rope(), HEADS, KV, qk_norm)


def _plain_input(layer: nn.Module, delta: Tensor, residual: Tensor | None) -> tuple[Tensor, ...]:
    """The same by the layer's own modules, as its forward and its attention's forward call them."""
    attention = layer.self_attn
    total = delta if residual is None else residual + delta
    normed = layer.input_layernorm(total)
    q, k, v = (linear(normed).unflatten(1, (-1, D)) for linear in _projections(attention))
    if hasattr(attention, "q_norm"):
        q, k = attention.q_norm(q), attention.k_norm(k)
    q, k = apply_rotary_pos_emb(q, k, *_rope(), unsqueeze_dim=1)
    return q, k, v, total


def _gradients(outputs: Iterable[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
    outputs = list(outputs)
    weights = [_random(*out.shape, seed=90 + i) for i, out in enumerate(outputs)]
    return list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))


def _assert_close(got: Iterable[Tensor | None], expected: Iterable[Tensor | None]) -> None:
    got, expected = list(got), list(expected)
    assert [x is None for x in got] == [x is None for x in expected]
    for a, b in zip(got, expected):
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_attention_input_is_the_layers(name: str, with_residual: bool, side_by_side: bool) -> None:
    layer = _layer(name)
    if side_by_side:
        lay_adjacent(*_projections(layer.self_attn))
    delta = _random(N, H, seed=50, grad=True)
    residual = _random(N, H, seed=51, grad=True) if with_residual else None
    got, expected = _fused_input(layer, delta, residual), _plain_input(layer, delta, residual)
    _assert_close(got, expected)
    inputs = [x for x in (delta, residual) if x is not None] + list(layer.parameters())
    _assert_close(_gradients(got, inputs), _gradients(expected, inputs))


def test_attention_input_without_gradients_is_the_same_and_keeps_nothing() -> None:
    layer = _layer("qwen3")
    delta, residual = _random(N, H, seed=50, grad=True), _random(N, H, seed=51)
    with torch.no_grad():
        got = _fused_input(layer, delta, residual)
    assert all(not x.requires_grad for x in got)
    assert all(torch.equal(a, b) for a, b in zip(got, _fused_input(layer, delta, residual)))


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_gradients_in_one_buffer_and_gradients_apart_say_the_same(name: str) -> None:
    layer = _layer(name)
    delta = _random(N, H, seed=50, grad=True)
    inputs = [delta, *layer.parameters()]
    grads = [_random(N, heads, D, seed=70 + heads) for heads in (HEADS, KV, KV)]
    q, k, v, _ = _fused_input(layer, delta, None)
    apart = torch.autograd.grad((q, k, v), inputs, grads, allow_unused=True)
    one = torch.cat([g.flatten(1) for g in grads], dim=1)
    views = one.unflatten(1, (-1, D)).split([HEADS, KV, KV], dim=1)
    q, k, v, _ = _fused_input(layer, delta, None)
    together = torch.autograd.grad((q, k, v), inputs, views, allow_unused=True)
    assert all((a is None and b is None) or torch.equal(a, b) for a, b in zip(apart, together))
    assert torch.equal(grads[0], _random(N, HEADS, D, seed=70 + HEADS))  # apart: left as they came


def test_outputs_that_nothing_used_count_as_zero() -> None:
    layer = _layer("llama")
    delta = _random(N, H, seed=50, grad=True)
    for used in ([1], [3], [0, 3]):
        got, expected = _fused_input(layer, delta, None), _plain_input(layer, delta, None)
        ours, theirs = ([outputs[i] for i in used] for outputs in (got, expected))
        for a, b in zip(_gradients(ours, [delta]), _gradients(theirs, [delta])):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("frozen", ["input_layernorm", "q_proj", "k_norm", "proj", ""])
def test_frozen_parameters_get_no_gradient(frozen: str) -> None:
    layer = _layer("qwen3")
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(frozen not in name)
    delta = _random(N, H, seed=50, grad=True)
    inputs = [delta, *(p for p in layer.parameters() if p.requires_grad)]
    got, expected = _fused_input(layer, delta, None), _plain_input(layer, delta, None)
    _assert_close(_gradients(got, inputs), _gradients(expected, inputs))


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_pages_hold_the_keys_and_values(name: str) -> None:
    layer = _layer(name)
    delta, residual = _random(N, H, seed=50), _random(N, H, seed=51)
    linears = _projections(layer.self_attn)
    keys, values = torch.zeros(2, 4, KV, 4, D, device=DEVICE)
    slots = torch.tensor([3, 0, 15, 7, 8, 1, 11], device=DEVICE)
    with torch.no_grad():
        q, total = attention_input_to_pages(
            delta,
            residual,
            _norm(layer.input_layernorm),
            tuple(linear.weight for linear in linears),
            None,
            _rope(),
            HEADS,
            KV,
            _qk_norm(layer.self_attn),
            keys,
            values,
            slots,
        )
        expected = _fused_input(layer, delta, residual)
    rows = [cache.transpose(1, 2).reshape(16, KV, D)[slots] for cache in (keys, values)]
    tolerance = 1e-5 if name == "qwen3" and DEVICE == "cuda" else 0.0  # norms of heads, as in test_rotary.py
    for ours, theirs in zip((q, *rows, total), expected):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_feed_forward_is_the_layers(name: str, side_by_side: bool) -> None:
    layer = _layer(name)
    mlp = layer.mlp
    if side_by_side:
        lay_adjacent(mlp.gate_proj, mlp.up_proj)
    module = layer.pre_feedforward_layernorm if name == "gemma3" else layer.post_attention_layernorm
    activation = "gelu_pytorch_tanh" if name == "gemma3" else "silu"
    delta, residual = _random(N, H, seed=50, grad=True), _random(N, H, seed=51, grad=True)
    weights = (mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    got = feed_forward(delta, residual, _norm(module), *weights, activation)
    total = residual + delta
    expected = (mlp(module(total)), total)
    _assert_close(got, expected)
    inputs = [delta, residual, module.weight, *weights]
    _assert_close(_gradients(got, inputs), _gradients(expected, inputs))
    again = feed_forward(delta, residual, _norm(module), *weights, activation, recompute=True)
    got = feed_forward(delta, residual, _norm(module), *weights, activation)
    assert all(torch.equal(a, b) for a, b in zip(_gradients(again, inputs), _gradients(got, inputs)))
    got = feed_forward(delta, residual, _norm(module), *weights, activation)
    _assert_close(_gradients(got[1:], inputs[:2]), _gradients((residual + delta,), inputs[:2]))


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_norms_by_themselves(name: str) -> None:
    module = _layer(name).post_attention_layernorm
    x, residual = _random(N, H, seed=50, grad=True), _random(N, H, seed=51, grad=True)
    inputs = [x, residual, module.weight]
    _assert_close([final_norm(x, residual, _norm(module))], [module(x + residual)])
    got, expected = final_norm(x, residual, _norm(module)), module(x + residual)
    _assert_close(_gradients([got], inputs), _gradients([expected], inputs))
    got, expected = rms_norm(x, _norm(module)), module(x)
    _assert_close(_gradients([got], inputs), _gradients([expected], inputs))


def test_gradients_come_in_the_dtype_that_a_weight_accumulates_in(monkeypatch: pytest.MonkeyPatch) -> None:
    # Products of bf16 matrices are not for every CPU.
    dtype, wider = (torch.bfloat16, torch.float32) if DEVICE == "cuda" else (torch.float32, torch.float64)
    layer = _layer("qwen3").to(dtype)
    for parameter in layer.parameters():
        parameter.grad_dtype = wider
    delta = _random(N, H, seed=50).to(dtype)

    def forward(delta: Tensor) -> Tensor:
        q, k, v, total = _fused_input(layer, delta, None)
        assert q.dtype == total.dtype == dtype
        mlp, norm = layer.mlp, _norm(layer.post_attention_layernorm)
        weights = (mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
        out, _ = feed_forward(total, None, norm, *weights, "silu")
        return rms_norm(q.sum() + k.sum() + v.sum() + out, norm).sum()

    forward(delta).backward()
    parameters = [p for name, p in layer.named_parameters() if "o_proj" not in name]
    grads = [p.grad for p in parameters]
    assert all(grad is not None and grad.dtype == wider and grad.isfinite().all() for grad in grads)
    # Recomputed layers see the parameters themselves, which alone know that dtype and the gradient so far.
    seen: list[Tensor] = []
    monkeypatch.setattr(block_gradients, "adds_in_place", lambda weight, _: bool(seen.append(weight)))
    monkeypatch.setattr(block_gradients, "grad_dtype", lambda weight: seen.append(weight) or weight.grad_dtype)
    layer.zero_grad()
    checkpoint(forward, delta, use_reentrant=False).backward()
    assert len(seen) > 6
    assert all(any(each is parameter for parameter in parameters) for each in seen)
    assert all(torch.equal(p.grad, grad) for p, grad in zip(parameters, grads))  # type: ignore[arg-type]
