"""Activations in host memory: gradients of the same bits, memory that is given back, chunks that are used again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import ref

import pytest
import torch
from learn.samples import batch
from tiny_models import tiny_llama
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from whet.config import load_config
from whet.config.schema.actor import ActorConfig
from whet.config.schema.model import ModelConfig
from whet.errors import UserError
from whet.learn import activations
from whet.learn.activations import IN_FLIGHT, Activation, ActivationOffload, Copies, HostMemory
from whet.learn.learner import LocalLearner
from whet.learn.partition import Budget
from whet.model.pass_modes import OFFLOADING
from whet.training.parts import open_learner

CPU = torch.device("cpu")


@pytest.fixture
def cpu_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU memory counts as a device's, and the smallest activation is worth a copy."""
    monkeypatch.setattr(activations, "movable", lambda device: True)
    monkeypatch.setattr(activations, "_LEAST", 1)


def offload_of(model: PreTrainedModel) -> ActivationOffload:
    """The offload behind the hooks that passes of a model use."""
    return OFFLOADING[model].__self__  # type: ignore[attr-defined]


def learner(offload: bool, recompute: bool | None = None) -> LocalLearner:
    model = ModelConfig(enable_gradient_checkpointing=recompute, enable_activation_offload=offload)
    made = LocalLearner(tiny_llama("whet"), ActorConfig(model=model), 1.0, 10, Budget(40, 80))
    made.model.train()
    return made


def gradients(made: LocalLearner) -> list[Tensor | None]:
    """Gradients of two micro-batches of different sizes, added up."""
    samples = batch()
    for micro in (samples[:3], samples[3:]):
        made.forward(micro).log_probs_BT.sum().backward()
    return [p.grad for p in made.model.parameters()]


def same(ours: list[Tensor | None], theirs: list[Tensor | None]) -> bool:
    return all(a is b is None or torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))  # type: ignore[arg-type]


def test_gradients_are_the_same_bits_and_chunks_are_used_again(cpu_moves: None) -> None:
    expected, ours = gradients(learner(offload=False)), learner(offload=True)
    assert same(gradients(ours), expected)
    memory = offload_of(ours.model).memory
    made = memory.made
    assert made >= len(ours.model.base_model.layers)
    assert memory.used == 0
    ours.model.zero_grad()
    assert same(gradients(ours), expected)
    assert memory.made == made


class LateCopies(Copies):
    """Copies of a stream that does nothing before someone waits for it, and then no more than it must."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._queued: list[list[tuple[Tensor, Tensor]]] = []
        self.done = 0

    def begin(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Any:
        self._queued.append(list(pairs))
        return len(self._queued)

    def wait(self, copied: Any) -> None:
        while self.done < (copied or 0):
            for to, source in self._queued[self.done]:
                to.copy_(source)
            self._queued[self.done] = []  # its memory may be used for something else from here on
            self.done += 1


def test_whoever_reads_or_frees_memory_waits_for_its_copy(cpu_moves: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activations, "Copies", LateCopies)
    expected, ours = gradients(learner(offload=False)), learner(offload=True)
    for _ in range(2):
        ours.model.zero_grad()
        assert same(gradients(ours), expected)
        assert offload_of(ours.model).memory.used == 0


def test_memory_is_given_back_after_its_copy(cpu_moves: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activations, "Copies", LateCopies)
    offload = ActivationOffload(CPU)
    packed = [offload._pack(torch.ones(4)) for _ in range(IN_FLIGHT + 1)]
    copies: Any = offload._copies
    assert copies.done == 1  # of the one that left
    packed.clear()  # a pass that failed
    assert copies.done == IN_FLIGHT + 1


def test_memory_of_the_device_is_given_back_in_the_forward_pass(
    cpu_moves: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activations, "_LEAST", 4 * 64)  # no smaller than a row of hidden states
    weight = torch.full((64, 64), 0.01, requires_grad=True)
    offload, inputs = ActivationOffload(CPU), []

    def layer(x: Tensor) -> Tensor:
        inputs.append(ref(x.untyped_storage()))
        return x @ weight

    x = torch.ones(3, 64)
    for _ in range(8):
        with offload.hooks():
            x = checkpoint(layer, x, use_reentrant=False)
    assert [each() is not None for each in inputs] == [False] * 6 + [True] * IN_FLIGHT
    x.sum().backward()
    assert not any(each() is not None for each in inputs[:8])


def test_passes_without_gradient_and_later_stages_keep_nothing(cpu_moves: None) -> None:
    ours = learner(offload=True)
    ours.log_probs(batch())
    assert offload_of(ours.model).memory.made == 0
    ours.configure(ActorConfig(), 1.0, Budget(40, 80))
    assert ours.model not in OFFLOADING


@pytest.mark.parametrize("recompute", [None, True, False])
def test_a_cpu_runs_the_same_config(recompute: bool | None) -> None:
    ours = learner(offload=True, recompute=recompute)
    assert ours.model not in OFFLOADING
    assert ours.model.is_gradient_checkpointing == (recompute is not False)
    assert same(gradients(ours), gradients(learner(offload=False, recompute=recompute)))


def test_the_key_reaches_the_learner(cpu_moves: None) -> None:
    config = load_config(["worker.actor.model.enable_activation_offload=true"])
    model = tiny_llama("whet")
    open_learner(config, model, total_steps=1)
    assert model in OFFLOADING


def kept(memory: HostMemory, count: int) -> tuple[list[Activation], list[Tensor]]:
    """Activations of one pass as autograd would keep them, and their values."""
    offload = ActivationOffload(CPU)
    offload.memory = memory
    tensors = [torch.randn(5 + i, 3, dtype=torch.bfloat16) for i in range(count)]
    packed = [offload._pack(each.clone()) for each in tensors]
    assert all(isinstance(each, Activation) for each in packed)
    return packed, tensors  # type: ignore[return-value]


def on_device(packed: list[Activation]) -> list[bool]:
    return [each._tensor is not None for each in packed]


def test_few_are_on_the_device_and_the_next_ones_are_brought_ahead(cpu_moves: None) -> None:
    memory = HostMemory(pinned=False, most=1000, chunk=16)  # 30 bytes and more: several chunks for each
    packed, tensors = kept(memory, 6)
    assert on_device(packed) == [False] * 4 + [True] * IN_FLIGHT
    assert torch.equal(packed[5].value(), tensors[5])
    assert on_device(packed) == [False] * 3 + [True, True, False]
    for i in (4, 3, 2, 1, 0):
        assert torch.equal(packed[i].value(), tensors[i])
        assert not any(on_device(packed)[i:])  # those that were asked for are not brought again
    assert torch.equal(packed[2].value(), tensors[2])  # a second backward pass asks again
    used = memory.used
    del packed[5]
    assert memory.used == used - 4  # 60 bytes
    packed.clear()
    assert memory.used == 0


def test_host_memory_that_runs_out_is_a_sentence(cpu_moves: None) -> None:
    memory = HostMemory(pinned=False, most=100, chunk=16)  # 30, 36 and 42 bytes are 8 chunks
    with pytest.raises(UserError, match="lower micro_batch_tokens of the same worker"):
        kept(memory, 3)
    assert memory.made == 6
    assert memory.used == 0


def test_weights_views_and_integers_stay_where_they_are(cpu_moves: None) -> None:
    offload = ActivationOffload(CPU)
    for tensor in (torch.nn.Parameter(torch.ones(4)), torch.ones(3, 4).t(), torch.ones(4, dtype=torch.long)):
        assert isinstance(offload._pack(tensor), Tensor)
    assert offload.memory.made == 0


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        raise ArithmeticError("in the middle")


def test_chunks_come_back_from_a_backward_pass_that_fails(cpu_moves: None) -> None:
    offload = ActivationOffload(CPU)

    def layer(x: Tensor, weight: Tensor) -> Tensor:
        return (x @ weight).tanh()

    def backward(fails: bool) -> Tensor | None:
        weight = torch.full((4, 4), 0.5, requires_grad=True)
        x = torch.ones(2, 4)
        for i in range(6):
            x = Fails.apply(x) if fails and i == 3 else x
            with offload.hooks():
                x = checkpoint(layer, x, weight, use_reentrant=False)
        x.sum().backward()
        return weight.grad

    expected = backward(fails=False)
    with pytest.raises(ArithmeticError, match="in the middle"):
        backward(fails=True)
    assert offload.memory.used == 0
    assert same([backward(fails=False)], [expected])
