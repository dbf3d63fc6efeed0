"""Prefix trees by whet's kernels and the fused decoder: log-probs and gradients of copies."""

from __future__ import annotations

import pytest
import torch
from learn.test_tree_packing import _copies, _packed, _weights
from learn.trees import episodes
from tiny_models import WORDS
from transformers import AutoModelForCausalLM, MistralConfig, PretrainedConfig, PreTrainedModel, Qwen3Config

pytest.importorskip("triton", reason="the fused decoder is made of triton kernels")

from whet.model.fused import decoder_of, fuse

pytestmark = [pytest.mark.usefixtures("kernels_everywhere"), pytest.mark.filterwarnings("ignore::RuntimeWarning")]
if not torch.cuda.is_available():
    pytestmark.append(pytest.mark.slow)  # the interpreter takes many seconds
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}


def _model(config: PretrainedConfig, how: str) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=how)


@pytest.mark.parametrize(
    "config", [Qwen3Config(**SIZES), MistralConfig(**SIZES, sliding_window=6)], ids=["qwen3", "mistral"]
)
def test_gradients_of_trees_by_kernels(config: PretrainedConfig) -> None:
    samples = episodes(seed=3, prompts=2, n=2)
    expected_log_probs, expected = _copies(_model(config, "sdpa"), samples)
    model = _model(config, "whet").to(DEVICE)
    assert fuse(model)
    assert decoder_of(model) is not None
    log_probs, gradients = _packed(model, samples, True)
    drawn = _weights(samples) != 0
    torch.testing.assert_close(log_probs.cpu().double()[drawn], expected_log_probs[drawn], atol=1e-4, rtol=0)
    for got, want in zip(gradients, expected, strict=True):
        assert float((got.cpu() - want).norm()) <= 1e-5 * float(want.norm())
