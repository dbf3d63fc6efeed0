"""Projections in 8-bit floats: what is rounded, what the learner computes of it, and its gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tiny_models import WRITER, byte_tokenizer, random_model, tiny_config
from transformers import PreTrainedModel

from whet.config.schema.model import ModelConfig
from whet.errors import UserError
from whet.learn.partition import Budget
from whet.learn.scoring import score
from whet.learn.update import make_trainable
from whet.model.fp8 import Fp8Mode, Fp8Weights, round_alike, rounded
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt, Sample

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROMPTS = [Prompt("a", [5, 9, 30, 7], ""), Prompt("b", [11, 4], "")]
PARAMS = SamplingParams(n=2, max_tokens=6, ignore_eos=True, seed=3)


def _model(family: str = "qwen3", **changes: int) -> PreTrainedModel:
    return random_model(tiny_config(family, **WRITER | {"head_dim": 16} | changes), 3, "whet").eval()


def _sampled(model: PreTrainedModel, fp8: bool = True) -> list[Sample]:
    return NativeEngine(model, byte_tokenizer(), frozenset({1}), 4, fp8=fp8).generate(PROMPTS, PARAMS)


def _scored(model: PreTrainedModel, samples: list[Sample]) -> torch.Tensor:
    return score(model, samples, 1.0, True).log_probs_BT


def test_a_row_is_rounded_by_its_own_largest_element() -> None:
    x = torch.randn(5, 48) * torch.tensor([1e-3, 1.0, 50.0, 1e4, 0.0])[:, None]
    q, scale = rounded(x)
    back = q.float() * scale
    assert torch.equal(back[4], x[4])
    assert ((back - x).abs() <= x.abs() / 16 + scale / 512).all()
    assert torch.allclose(back.abs().amax(1), x.abs().amax(1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="triton's interpreter rounds to 8 bits in another way")
def test_the_kernel_rounds_as_torch_does() -> None:
    from whet.kernels.fp8 import quantise_rows

    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    q, scale = quantise_rows(x.to("cuda"))
    expected = rounded(x)
    torch.testing.assert_close(scale.cpu(), expected.scale_O1)
    gap = (q.cpu().float() - expected.q_OI.float()).abs()
    assert (gap <= expected.q_OI.float().abs() / 8).all()  # where a quotient falls between two, by its last bit
    assert (gap == 0).float().mean() > 0.95


def test_products_take_rounded_factors_and_gradients_pass_straight_through() -> None:
    model = _model()
    linear = model.base_model.layers[0].mlp.down_proj
    weights = Fp8Weights(model)
    weights.refresh()
    x = torch.randn(2, 5, linear.in_features, requires_grad=True)
    with Fp8Mode(weights):
        out, router = linear(x), F.linear(x, torch.eye(linear.in_features))
    flat = rounded(x.detach().flatten(0, 1))
    own = rounded(linear.weight.detach())
    expected = (flat.q_OI.float() * flat.scale_O1) @ (own.q_OI.float() * own.scale_O1).t()
    torch.testing.assert_close(out, expected.view_as(out), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(out, linear(x), atol=1e-4)
    assert torch.equal(router, x)  # what is no weight of the decoder is left alone
    grad = torch.randn_like(out)
    found = torch.autograd.grad(out, [x, linear.weight], grad)
    plain = torch.autograd.grad(linear(x), [x, linear.weight], grad)
    for each, right in zip(found, plain):
        torch.testing.assert_close(each, right, rtol=1e-5, atol=1e-5)


def test_the_learner_that_rounds_alike_has_the_samplers_log_probs() -> None:
    model = _model()
    samples = _sampled(model)
    right = torch.tensor([sample.log_probs for sample in samples])
    with torch.no_grad():
        plain = _scored(model, samples)
        round_alike(model)
        alike = _scored(model, samples)
    torch.testing.assert_close(alike, right, rtol=1e-4, atol=1e-4)
    assert (plain - right).abs().max() > 1e-3


def test_gradients_are_the_same_when_layers_are_computed_again() -> None:
    samples = _sampled(_model())
    gradients = []
    for recompute in (False, True):
        model = _model()
        round_alike(model)
        make_trainable(model, ModelConfig(enable_gradient_checkpointing=recompute), Budget(None, None))
        model.train()
        _scored(model, samples).sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, grad in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], grad, rtol=1e-5, atol=1e-5)


def test_new_weights_are_rounded_when_they_are_loaded() -> None:
    model = _model()
    engine = NativeEngine(model, byte_tokenizer(), frozenset({1}), 4, fp8=True)
    engine.generate(PROMPTS[:1], PARAMS)
    with torch.no_grad():
        for p in model.base_model.layers.parameters():
            p.mul_(torch.linspace(0.5, 1.5, len(p)).view(-1, *[1] * (p.dim() - 1)))
    engine.load_weights(lambda: iter(()), 1)
    found = engine.generate(PROMPTS, PARAMS)
    assert [s.ids for s in found] == [s.ids for s in _sampled(model)]
    assert found[0].version == 1


def test_a_mixture_of_experts_without_fused_kernels_is_refused() -> None:
    with pytest.raises(UserError, match="quantization=fp8: mixtures of experts need fused kernels"):
        NativeEngine(_model("qwen3_moe"), byte_tokenizer(), frozenset({1}), 4, fp8=True)


@pytest.mark.usefixtures("kernels_everywhere")
def test_products_of_experts_take_rounded_factors() -> None:
    pytest.importorskip("triton", reason="grouped products are triton kernels")
    from whet.kernels.glu import glu
    from whet.kernels.grouped import grouped_glu, grouped_linear
    from whet.kernels.routing import group
    from whet.model.fused import fuse

    model = _model("qwen3_moe", moe_intermediate_size=32, num_hidden_layers=1).to(DEVICE)
    assert fuse(model)
    weights = Fp8Weights(model)
    weights.refresh()
    experts = model.base_model.layers[0].mlp.experts
    weight = experts.gate_up_proj.detach()
    x = torch.randn(5, weight.shape[2], device=DEVICE, dtype=weight.dtype)
    groups = group(torch.tensor([[0, 1], [3, 0], [1, 3], [0, 2], [2, 1]], dtype=torch.int32, device=DEVICE), 4, 16)
    own = rounded(weight.flatten(0, 1)).widened(weight.dtype).view_as(weight)
    expected = grouped_linear(rounded(x).widened(x.dtype), own, groups, True)
    with Fp8Mode(weights):
        found, act = grouped_linear(x, weight, groups, True), grouped_glu(x, weight, groups, "silu")
        back = grouped_linear(found, weight.transpose(1, 2), groups)  # gradients are those without rounding
    near = 1e-5 if DEVICE == "cpu" else 2e-2
    torch.testing.assert_close(found, expected, rtol=near, atol=near)
    torch.testing.assert_close(act, glu(expected, "silu"), rtol=near, atol=near)
    assert torch.equal(back, grouped_linear(found, weight.transpose(1, 2), groups))
    assert not torch.allclose(found, grouped_linear(x, weight, groups, True), atol=1e-4)
    with Fp8Mode(weights, live=True):
        assert torch.equal(grouped_linear(x, weight, groups, True), found)
