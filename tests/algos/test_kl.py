from __future__ import annotations

import math

import pytest
import torch
from algos.golden import read, tensor

from whet.algos.kl import NAMES, kl_penalty, penalise
from whet.errors import UserError


@pytest.mark.parametrize("name", ["kl", "abs", "mse", "low_var_kl", "k3+", "k1+", "abs+"])
def test_value_and_gradient_like_verl(name: str) -> None:
    golden = read("verl_0.9.1.json")
    inputs, expected = golden["inputs"], golden["kl"][name]
    mask = tensor(inputs["mask"])
    log_probs = tensor(inputs["log_prob"]).requires_grad_()
    total = (kl_penalty(log_probs, tensor(inputs["ref_log_prob"]), name) * mask).sum()
    total.backward()
    assert float(total.detach()) == pytest.approx(expected["sum"], abs=2e-6)
    torch.testing.assert_close(log_probs.grad, tensor(expected["grad"]), atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", ["kl", "abs", "mse", "low_var_kl"])
def test_each_token_like_the_forks(name: str) -> None:
    golden = read("forks.json")
    inputs = golden["loss_inputs"]
    ours = kl_penalty(tensor(inputs["new"]), tensor(inputs["ref"]), name)
    torch.testing.assert_close(ours, tensor(golden[f"kl.{name}"]), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("name", "same"), [("k1", "kl"), ("k2", "mse"), ("k3", "low_var_kl")])
def test_short_names(name: str, same: str) -> None:
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(kl_penalty(a, b, name), kl_penalty(a, b, same))


@pytest.mark.parametrize("name", NAMES)
def test_a_plus_has_the_value_of_its_estimator_and_the_gradient_of_k2(name: str) -> None:
    a = torch.randn(5, dtype=torch.float64).requires_grad_()
    b = torch.randn(5, dtype=torch.float64)
    estimate = kl_penalty(a, b, f"{name}+")
    assert torch.equal(estimate, kl_penalty(a, b, name))
    (slope,) = torch.autograd.grad(estimate.sum(), a)
    torch.testing.assert_close(slope, (a - b).detach())


def test_k3_is_bounded_where_the_reference_is_sure() -> None:
    far = kl_penalty(torch.tensor([-200.0, -1.0]), torch.tensor([-1.0, -200.0]), "low_var_kl")
    torch.testing.assert_close(far, torch.tensor([10.0, 10.0]))


@pytest.mark.parametrize("name", NAMES)
def test_bf16_is_computed_in_fp32_and_fp64_stays(name: str) -> None:
    a, b = torch.randn(4).bfloat16(), torch.randn(4).bfloat16()
    assert torch.equal(kl_penalty(a, b, name), kl_penalty(a.float(), b.float(), name))
    assert kl_penalty(a.double(), b.double(), name).dtype == torch.float64


def test_penalise_takes_the_penalty_off_the_tokens_that_the_model_wrote() -> None:
    mask = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.0, 0.0]])
    log_probs = torch.tensor([[-1.0, math.inf, -2.0], [-1.0, math.nan, -math.inf]])
    ref = torch.tensor([[-1.5, 0.0, -3.0], [-0.5, 0.0, 0.0]])
    penalised, kl = penalise(rewards, kl_penalty(log_probs, ref, "kl"), mask, 0.1)
    torch.testing.assert_close(penalised, torch.tensor([[-0.05, 0.0, 0.9], [0.55, 0.0, 0.0]]))
    assert float(kl) == pytest.approx(((0.5 + 1.0) / 2 + -0.5) / 2)


def test_penalise_with_a_response_outside_the_mask() -> None:
    penalised, kl = penalise(torch.ones(1, 2), torch.ones(1, 2), torch.zeros(1, 2), 1.0)
    assert torch.equal(penalised, torch.ones(1, 2))
    assert float(kl) == 0.0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="kl_penalty=k4"):
        kl_penalty(torch.zeros(1), torch.zeros(1), "k4")
    with pytest.raises(UserError, match=r"kl_penalty=full"):  # not an estimate from log-probs
        kl_penalty(torch.zeros(1), torch.zeros(1), "full+")
