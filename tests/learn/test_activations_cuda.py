"""Activations in host memory on a CUDA device: the same bits with less memory, also after a pass that failed."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from whet.config.schema.actor import ActorConfig
from whet.config.schema.model import LoraConfig, ModelConfig
from whet.learn.activations import ActivationOffload
from whet.learn.learner import LocalLearner
from whet.learn.memory import token_bytes
from whet.learn.partition import Budget
from whet.model.fused import decoder_of, unfuse
from whet.model.load import load_model
from whet.model.pass_modes import OFFLOADING
from whet.types import Prompt, Sample

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CONFIG = Qwen3Config(
    vocab_size=512,
    hidden_size=1024,
    intermediate_size=1024,
    num_hidden_layers=16,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=64,
    initializer_range=0.05,
    eos_token_id=None,
    bos_token_id=None,
)
LENGTHS = (5000, 1200, 7000, 300)  # of the responses of one micro-batch each


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("offload")
    Qwen3ForCausalLM(CONFIG).save_pretrained(folder)
    return str(folder)


def _learner(path: str, offload: bool, kind: str) -> LocalLearner:
    model = load_model(path, torch.bfloat16, "cuda")
    if kind == "modules":
        unfuse(model)
    assert (decoder_of(model) is None) == (kind == "modules")
    if kind == "adapters":
        from whet.model.lora import add_adapters

        add_adapters(model, LoraConfig(rank=4), "random", 0)
    else:
        model.requires_grad_(True)
    section = ModelConfig(enable_gradient_checkpointing=True, enable_activation_offload=offload)
    made = LocalLearner(model, ActorConfig(model=section), 1.0, 10, Budget(8192, 8192))
    made.model.train()
    return made


def _micro_batch(length: int) -> list[Sample]:
    """Two samples of one prompt, which share it."""
    random = torch.Generator().manual_seed(length)
    prompt = Prompt("row", torch.randint(5, 500, (40,), generator=random).tolist(), "")
    halves = torch.randint(5, 500, (2, length // 2), generator=random).tolist()
    return [Sample.written(prompt, ids, [-6.0] * len(ids), "length", index=i) for i, ids in enumerate(halves)]


def _backward(learner: LocalLearner, length: int) -> None:
    learner._accumulate(-learner.forward(_micro_batch(length)).log_probs_BT.mean())


def _gradients(learner: LocalLearner) -> dict[str, Tensor]:
    learner.model.zero_grad()
    for length in LENGTHS:
        _backward(learner, length)
    return {name: p.grad for name, p in learner.model.named_parameters() if p.grad is not None}


def _peak(learner: LocalLearner) -> int:
    """Bytes beyond those of models and gradients."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    _backward(learner, max(LENGTHS))
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _offload(learner: LocalLearner) -> ActivationOffload:
    (hooks,) = [OFFLOADING[each] for each in learner.model.modules() if each in OFFLOADING]
    return hooks.__self__  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["fused", "modules", "adapters"])
def test_gradients_are_the_same_bits_with_less_memory(path: str, kind: str) -> None:
    plain, ours = (_learner(path, offload, kind) for offload in (False, True))
    expected, found = _gradients(plain), _gradients(ours)
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], each) for name, each in expected.items())
    memory = _offload(ours).memory
    made = memory.made
    assert memory.used == 0
    # The same again: pinned memory is not allocated anew, and nothing is read before it has arrived.
    again = _gradients(ours)
    assert all(torch.equal(again[name], each) for name, each in expected.items())
    assert memory.made == made
    here, away = (token_bytes(CONFIG, torch.bfloat16, fused=True, offloaded=each).recomputed for each in (False, True))
    streams = 1 if kind == "modules" else 2  # that a layer is given: modules add them up
    saved = (max(LENGTHS) + 40) * (here - away) * streams / 2
    assert _peak(plain) - _peak(ours) > 0.8 * saved


def test_gradients_are_right_after_a_backward_pass_that_failed(path: str) -> None:
    ours = _learner(path, True, "fused")
    expected = {name: each.clone() for name, each in _gradients(ours).items()}
    memory = _offload(ours).memory
    made, weight = memory.made, ours.model.base_model.layers[7].input_layernorm.weight
    calls: list[int] = []

    def fail(grad: Tensor) -> None:
        calls.append(1)
        raise ArithmeticError("in the middle")

    handle = weight.register_hook(fail)
    for length in LENGTHS:
        with pytest.raises(ArithmeticError, match="in the middle"):
            _backward(ours, length)
    handle.remove()
    assert len(calls) == len(LENGTHS)
    found = _gradients(ours)
    assert memory.used == 0
    assert memory.made <= 2 * made  # torch may hold the graph of a failed pass until the next one
    assert all(torch.equal(found[name], each) for name, each in expected.items())
