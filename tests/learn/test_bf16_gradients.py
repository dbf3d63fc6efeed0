"""In bf16 a shared prefix changes the gradient by no more than bf16's own noise."""

from __future__ import annotations

import random

import pytest
import torch
from conftest import DEVICE
from learn.samples import sample
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from whet.learn.optimizer import sum_gradients_in_fp32
from whet.learn.scoring import score
from whet.model.fused import decoder_of, fuse
from whet.types import Prompt, Sample

BF16 = DEVICE == "cuda"  # products in bf16 take minutes on many CPUs


def _model(dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.06,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="whet", dtype=torch.float32)
    return model.to(DEVICE, torch.bfloat16).to(dtype).eval()  # the same weights whatever the dtype


def _samples() -> list[Sample]:
    rng = random.Random(5)
    samples = []
    for p in range(3):
        prompt = Prompt(f"row:{p}", [rng.randrange(512) for _ in range(rng.randint(40, 90))], "")
        samples += [sample(prompt, [rng.randrange(512) for _ in range(rng.randint(1, 60))]) for _ in range(6)]
    return samples


def _gradients(model: PreTrainedModel, share: bool) -> Tensor:
    model.zero_grad()
    samples = _samples()
    scored = score(model, samples, 1.0, share)
    signs = torch.tensor([1.0, -0.5, 0.7, -1.2, 0.3, -0.9] * 3, device=DEVICE)
    (signs[:, None] * scored.log_probs_BT).sum().div(len(samples)).backward()
    return torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])


def _error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


def test_a_shared_prefix_has_the_gradient_of_a_copied_one() -> None:
    truth = _gradients(_model(torch.float32), share=False)
    limit = 1e-5 if DEVICE == "cpu" else 1e-3  # products in fp32 may be TF32 in kernels
    assert _error(_gradients(_model(torch.float32), share=True), truth) < limit


@pytest.mark.skipif(not BF16, reason="needs a CUDA device")
def test_in_bf16_it_is_as_near_to_the_truth() -> None:
    truth = _gradients(_model(torch.float32), share=False)
    model = _model(torch.bfloat16)
    assert fuse(model), "this model should run by the fused kernels"
    assert decoder_of(model) is not None
    copied, shared = _gradients(model, share=False), _gradients(model, share=True)
    noise = _error(copied, truth)
    assert 0 < noise < 0.05, noise  # bf16 has 8 bits
    assert _error(shared, truth) < 1.25 * noise
    assert _error(shared, copied) < 1.5 * noise


@pytest.mark.cuda
@pytest.mark.skipif(not BF16, reason="needs a CUDA device")
def test_gradients_of_later_micro_batches_are_added_as_they_are_computed() -> None:
    model = _model(torch.bfloat16)
    assert fuse(model)
    sum_gradients_in_fp32(model.parameters())
    one = _gradients(model, share=True)
    down = next(p for name, p in model.named_parameters() if "down_proj" in name)
    assert down.grad is not None
    address = down.grad.data_ptr()
    scored = score(model, _samples(), 1.0, True)
    signs = torch.tensor([1.0, -0.5, 0.7, -1.2, 0.3, -0.9] * 3, device=DEVICE)
    (signs[:, None] * scored.log_probs_BT).sum().div(18).backward()
    two = torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])
    assert down.grad.data_ptr() == address
    assert _error(two, 2 * one) < 1e-5
