"""Muon: which parameters are whose, one step against an independent computation, and state that survives saving."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from whet.config.schema.model import OptimConfig
from whet.errors import UserError
from whet.learn.muon import MuonAdamW, hidden_matrices
from whet.learn.optimizer import build_optimizer


class _Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(7, 4)
        self.wide, self.norm = nn.Linear(4, 6), nn.LayerNorm(6)
        self.tall = nn.Linear(6, 4, bias=False)
        self.lm_head = nn.Linear(4, 7, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.tall(self.norm(self.wide(self.embed(ids)))))


def _train(model: _Small, optimizer: torch.optim.Optimizer, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        ids = torch.randint(7, (5,), generator=generator)
        nn.functional.cross_entropy(model(ids), ids.flip(0)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def test_matrices_of_layers_alone_are_muons() -> None:
    model = _Small()
    assert hidden_matrices(model) == {model.wide.weight, model.tall.weight}
    optimizer = build_optimizer(model.parameters(), OptimConfig(strategy="muon"), model)
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 5]
    model.wide.weight.requires_grad_(False)
    assert hidden_matrices(model) == {model.tall.weight}


def test_a_step_has_singular_values_near_one() -> None:
    """The first step moves a matrix by lr · 0.2·√max(n, m) · U·Vᵀ of its gradient, as well as five iterations can."""
    model = _Small()
    optimizer = build_optimizer(model.parameters(), OptimConfig(strategy="muon", lr=0.1, weight_decay=0.0), model)
    ids = torch.tensor([1, 4, 2, 6, 3])
    nn.functional.cross_entropy(model(ids), ids.flip(0)).backward()
    before, gradient = model.tall.weight.detach().clone(), model.tall.weight.grad.clone()
    embedded, slope = model.embed.weight.detach().clone(), model.embed.weight.grad.clone()
    optimizer.step()
    moved = (before - model.tall.weight.detach()) / (0.1 * 0.2 * math.sqrt(6))
    values = torch.linalg.svdvals(moved)
    assert 0.5 < float(values.min()) < float(values.max()) < 1.35  # what five iterations of the quintic reach
    u, _, v = torch.linalg.svd(gradient, full_matrices=False)
    assert float((moved * (u @ v)).sum() / moved.norm() / 2.0) > 0.97  # and in the direction of U·Vᵀ, whose norm is 2
    # AdamW's first step is lr · sign of the gradient
    expected = embedded - 0.1 * slope / (slope.abs() + 1e-8)
    torch.testing.assert_close(model.embed.weight.detach(), expected, atol=1e-5, rtol=0)


def test_the_learning_rate_of_both_is_set_through_the_groups() -> None:
    model = _Small()
    optimizer = build_optimizer(model.parameters(), OptimConfig(strategy="muon", lr=0.1), model)
    before = copy.deepcopy(model.state_dict())
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    _train(model, optimizer, 1, seed=0)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_resumes_bit_for_bit() -> None:
    whole, config = _Small(), OptimConfig(strategy="muon", lr=0.02)
    optimizer = build_optimizer(whole.parameters(), config, whole)
    _train(whole, optimizer, 3, seed=0)
    weights, state = copy.deepcopy(whole.state_dict()), copy.deepcopy(optimizer.state_dict())
    _train(whole, optimizer, 3, seed=1)
    again = _Small()
    again.load_state_dict(weights)
    resumed = build_optimizer(again.parameters(), config, again)
    resumed.load_state_dict(state)
    _train(again, resumed, 3, seed=1)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    ours, theirs = optimizer.state_dict()["state"], resumed.state_dict()["state"]
    assert all(torch.equal(ours[i][key], theirs[i][key]) for i in ours for key in ours[i])


def test_bf16_is_refused() -> None:
    model = _Small().to(torch.bfloat16)
    with pytest.raises(UserError, match="torch_dtype=fp32"):
        build_optimizer(model.parameters(), OptimConfig(strategy="muon"), model)


def test_nothing_but_matrices() -> None:
    model = nn.Linear(3, 3, bias=False)
    optimizer = build_optimizer(model.parameters(), OptimConfig(strategy="muon"), model)
    assert isinstance(optimizer, MuonAdamW)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
