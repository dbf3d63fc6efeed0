"""Experts by grouped products against transformers' own modules: outputs, gradients, replayed routing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

pytest.importorskip("triton", reason="the fused decoder is made of triton kernels")

from tiny_models import random_model, tiny_config

from whet.config.schema.model import LoraConfig
from whet.errors import UserError
from whet.model.attention import packed_attention_for
from whet.model.blocks import Norm
from whet.model.fused import decoder_of, fuse
from whet.model.load import hidden_states, load_model
from whet.model.mixture import Experts, mixture
from whet.model.routing import Record, Replay, RoutingShape, mixtures

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
kernels = pytest.mark.usefixtures("kernels_everywhere")
slow_in_the_interpreter = pytest.mark.slow if DEVICE == "cpu" else pytest.mark.early


def _model(family: str = "qwen3_moe", seed: int = 0, **changes: Any) -> PreTrainedModel:
    changes = {"head_dim": 16, "num_hidden_layers": 1, "hidden_size": 24} | changes
    model = random_model(tiny_config(family, **changes), seed, "whet")
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 1.0, 0.3)
    return model.to(DEVICE).eval()


def _block(model: PreTrainedModel, x: torch.Tensor) -> torch.Tensor:
    layer: Any = model.base_model.layers[0]
    return layer.mlp(layer.post_attention_layernorm(x)[None])[0]


def _fused(model: PreTrainedModel, delta: torch.Tensor, residual: torch.Tensor, recompute: bool) -> Any:
    layer: Any = model.base_model.layers[0]
    norm, block = layer.post_attention_layernorm, layer.mlp
    parameters = (block.gate.weight, block.experts.gate_up_proj, block.experts.down_proj)
    experts = Experts(*parameters, block.gate.top_k, getattr(block.gate, "norm_topk_prob", True))
    return mixture(delta, residual, Norm(norm.weight, norm.variance_epsilon), experts, "silu", recompute)


def _gradients(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


@kernels
@pytest.mark.parametrize(
    ("family", "seed", "normalised"),
    [("qwen3_moe", 0, True), ("qwen3_moe", 1, False), ("qwen3_moe", 2, True), ("mixtral", 3, None)],
)
def test_outputs_and_gradients_are_those_of_the_modules(family: str, seed: int, normalised: bool | None) -> None:
    changes = {} if normalised is None else {"norm_topk_prob": normalised, "num_experts": 5}
    model = _model(family, seed, **changes)
    given = torch.randn(3, 7, 24, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    delta, residual, weight = (each.clone().requires_grad_() for each in given)
    out = _block(model, delta + residual)
    ((out + delta + residual) * weight).sum().backward()
    expected, expected_delta = _gradients(model), delta.grad.clone()  # type: ignore[union-attr]
    delta.grad = residual.grad = None
    found, total = _fused(model, delta, residual, recompute=seed == 2)
    ((found + total) * weight).sum().backward()
    torch.testing.assert_close(found, out, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(delta.grad, expected_delta, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(residual.grad, expected_delta, rtol=1e-4, atol=1e-5)
    gradients = _gradients(model)
    assert {name.rpartition(".")[2] for name in gradients} == {"weight", "gate_up_proj", "down_proj"}
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        scale = expected[name].abs().max()
        torch.testing.assert_close(gradient / scale, expected[name] / scale, rtol=1e-4, atol=1e-5)


def _pass(model: PreTrainedModel, routing: Record | Replay | None) -> torch.Tensor:
    ids, positions = torch.arange(7, 12, device=DEVICE), torch.tensor([0, 1, 2, 0, 1], device=DEVICE)
    attention = packed_attention_for(np.array([(0, 3, 0, 0), (3, 2, 0, 0)]), DEVICE)
    return hidden_states(model, ids, positions, attention, routing=routing)


def _backward(hidden: torch.Tensor, model: PreTrainedModel) -> dict[str, torch.Tensor]:
    weight = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    (hidden * weight).sum().backward()
    return _gradients(model)


@slow_in_the_interpreter
@kernels
def test_the_fused_decoder_computes_a_mixture_and_replays_routing_as_the_modules_do() -> None:
    # Layer 1 of 3 has an MLP: layers with experts are counted by themselves.
    model = _model(num_hidden_layers=3, mlp_only_layers=[1], num_experts=5)
    told = torch.randint(5, (5, 2, 1), device=DEVICE).expand(-1, -1, 2).clone()
    told[..., 1] = (told[..., 0] + 1) % 5
    told[2] = -1  # left to the router
    expected = [_pass(model, None), _pass(model, Replay(told))]
    gradients = [_backward(each, model) for each in expected]
    assert not torch.allclose(*expected, atol=1e-2)
    assert fuse(model)
    assert decoder_of(model) is not None
    model.gradient_checkpointing_enable()
    model.train()
    for routing, hidden, right in zip((None, Replay(told)), expected, gradients):
        found = _pass(model, routing)
        torch.testing.assert_close(found, hidden, rtol=1e-4, atol=1e-4)
        for name, gradient in _backward(found, model).items():
            scale = right[name].abs().max()
            torch.testing.assert_close(gradient / scale, right[name] / scale, rtol=1e-3, atol=1e-4)


def test_what_was_recorded_is_replayed_by_the_modules_also_under_gradient_checkpointing() -> None:
    model = _model(num_hidden_layers=2)
    shape = RoutingShape(model)
    assert (shape.layers, shape.top_k, shape.experts, shape.dtype) == (2, 2, 4, torch.uint8)
    out = torch.zeros(2, 5, 2, dtype=torch.uint8, device=DEVICE)
    hidden = _pass(model, Record(out))
    right = _backward(hidden, model)
    with torch.no_grad():  # another router chooses otherwise; the record is followed
        for block in mixtures(model):
            block.gate.weight.copy_(block.gate.weight.flip(0))
    changed = _pass(model, None)
    assert not torch.allclose(changed, hidden, atol=1e-2)
    model.gradient_checkpointing_enable()
    model.train()
    replayed = _pass(model, Replay(out.transpose(0, 1)))
    again = torch.zeros_like(out)
    _pass(model, Record(again, out.transpose(0, 1)))
    assert torch.equal(again, out)
    gradients = _backward(replayed, model)
    assert gradients.keys() == right.keys()
    for block in mixtures(model):
        block.gate.weight.data.copy_(block.gate.weight.flip(0))
    torch.testing.assert_close(_pass(model, Replay(out.transpose(0, 1))), hidden, rtol=1e-5, atol=1e-5)


def test_a_model_without_experts_has_no_routing_to_replay() -> None:
    with pytest.raises(UserError, match="replay_routing: a model of type qwen3 has no experts"):
        RoutingShape(random_model(tiny_config("qwen3"), 0, "whet"))


@pytest.mark.skipif(find_spec("peft") is None, reason="adapters are PEFT's")
def test_adapters_go_to_the_projections_of_attention_and_not_to_experts() -> None:
    from whet.model.lora import add_adapters

    model = _model()
    add_adapters(model, LoraConfig(rank=2, alpha=4), "base", seed=0)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name.split(".self_attn.")[1].split(".")[0] for name in trained} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    gradients = _backward(_pass(model, None), model)
    assert gradients.keys() == trained


def test_a_saved_mixture_is_the_same_model_again(tmp_path: Path) -> None:
    model = _model(num_hidden_layers=2)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(_pass(load_model(str(tmp_path), device=DEVICE), None), _pass(model, None))
