"""Weights side by side: the model must not notice."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from whet.model.weights import adjacent, columns_of_one, lay_adjacent


@pytest.fixture
def model() -> PreTrainedModel:
    """Two layers with biases and a tied head."""
    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=32,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=2,
        vocab_size=64,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)


def _lay_out(model: PreTrainedModel) -> None:
    for layer in model.model.layers:
        lay_adjacent(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
        lay_adjacent(layer.mlp.gate_proj, layer.mlp.up_proj)


def _lies_adjacent(*tensors: torch.Tensor) -> bool:
    return adjacent(*tensors).data_ptr() == tensors[0].data_ptr()


def _assert_same(one: nn.Module, other: nn.Module) -> None:
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_parameters_stay_the_same_objects_with_the_same_values(model: PreTrainedModel) -> None:
    before, objects = copy.deepcopy(model), list(model.parameters())
    _lay_out(model)
    assert all(a is b for a, b in zip(objects, model.parameters()))
    _assert_same(model, before)
    attention = model.model.layers[1].self_attn
    linears = (attention.q_proj, attention.k_proj, attention.v_proj)
    for kind in ("weight", "bias"):
        assert _lies_adjacent(*(getattr(linear, kind) for linear in linears))
    place = attention.q_proj.weight.data_ptr()
    _lay_out(model)  # again: nothing moves
    assert attention.q_proj.weight.data_ptr() == place


def test_the_one_tensor_sees_what_an_optimizer_does(model: PreTrainedModel) -> None:
    mlp = model.model.layers[0].mlp
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    _lay_out(model)
    both = adjacent(mlp.gate_proj.weight, mlp.up_proj.weight)
    ids = torch.arange(12)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    before = both.clone()
    optimizer.step()
    assert not torch.equal(both, before)
    assert torch.equal(both, torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]))


def test_a_saved_folder_loads_to_equal_weights(model: PreTrainedModel, tmp_path: Path) -> None:
    _lay_out(model)
    model.save_pretrained(tmp_path)
    _assert_same(AutoModelForCausalLM.from_pretrained(tmp_path), model)
    size = sum(file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    assert size < 1.1 * 4 * sum(p.numel() for p in model.parameters()) + 8192


def test_copies_and_moves_keep_the_values(model: PreTrainedModel, tmp_path: Path) -> None:
    before = copy.deepcopy(model)
    _lay_out(model)
    _assert_same(copy.deepcopy(model), before)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    other = Qwen2ForCausalLM(model.config)
    _lay_out(other)
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    _assert_same(other, before)
    assert _lies_adjacent(other.model.layers[0].mlp.gate_proj.weight, other.model.layers[0].mlp.up_proj.weight)
    _assert_same(model.double(), before.double())
    mlp = model.model.layers[0].mlp
    assert torch.equal(
        adjacent(mlp.gate_proj.weight, mlp.up_proj.weight), torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
    )


def test_a_copy_shares_nothing_with_the_model(model: PreTrainedModel) -> None:
    _lay_out(model)
    other = copy.deepcopy(model)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())


def test_frozen_weights_stay_frozen_and_weights_tied_to_each_other_stay_where_they_are() -> None:
    one, other = nn.Linear(4, 3, bias=False), nn.Linear(4, 5)
    one.weight.requires_grad_(False)
    lay_adjacent(one, other)
    assert _lies_adjacent(one.weight, other.weight)
    assert not one.weight.requires_grad
    assert other.weight.requires_grad
    tied = nn.Linear(4, 3, bias=False)
    tied.weight = one.weight
    lay_adjacent(one, tied)
    assert torch.equal(adjacent(one.weight, tied.weight), torch.cat([one.weight, one.weight]))


def test_mixed_dtypes_are_left_alone() -> None:
    one, other = nn.Linear(4, 3), nn.Linear(4, 3).double()
    place = one.weight.data_ptr()
    lay_adjacent(one, other)
    assert one.weight.data_ptr() == place


def test_columns_of_one_buffer_are_used_as_they_are() -> None:
    buffer = torch.randn(5, 4 * 8)
    views = buffer.unflatten(1, (4, 8)).split([2, 1, 1], dim=1)
    like = torch.empty(5, 3)
    assert columns_of_one(views, (2, 1, 1), like, 8).data_ptr() == buffer.data_ptr()
    assert torch.equal(columns_of_one(views, (2, 1, 1), like, 8), buffer)
    swapped = (views[0], views[2], views[1])
    copied = columns_of_one(swapped, (2, 1, 1), like, 8)
    assert torch.equal(copied, torch.cat([view.flatten(1) for view in swapped], dim=1))
    missing = columns_of_one((views[0], None, views[2]), (2, 1, 1), like, 8)
    assert not missing[:, 16:24].any()


def test_tensors_that_merely_follow_each_other_in_memory_are_copied() -> None:
    buffer = torch.arange(24.0)
    one = torch.frombuffer(buffer.numpy(), dtype=torch.float32, count=12).view(3, 4)
    other = torch.frombuffer(buffer.numpy(), dtype=torch.float32, count=12, offset=48).view(3, 4)
    assert one.data_ptr() + 48 == other.data_ptr()
    both = adjacent(one, other)
    assert torch.equal(both, buffer.view(6, 4))
    assert both.data_ptr() != one.data_ptr()
