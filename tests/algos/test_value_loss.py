from __future__ import annotations

import math

import pytest
import torch
from algos.golden import read, tensor
from torch import Tensor

from whet.algos.aggregate import MODES, Aggregator, count
from whet.algos.value_loss import value_loss


def _run(
    values: Tensor, old: Tensor, returns: Tensor, mask: Tensor, mode: str = "token"
) -> tuple[float, Tensor, dict[str, float]]:
    values = values.clone().requires_grad_()
    aggregate = Aggregator(mode, count(mask, horizon=mask.shape[1]))
    loss, metrics = value_loss(values, old, returns, mask, 0.5, aggregate)
    loss.backward()
    return float(loss.detach()), values.grad, {name: float(value) for name, value in metrics.items()}


def test_like_verl() -> None:
    golden = read("verl_0.9.1.json")
    inputs, expected = golden["inputs"], golden["value_loss"]
    old = tensor(inputs["values"])
    values = old + 0.7 * torch.sin(torch.arange(30.0)).reshape(6, 5)
    loss, _, metrics = _run(values, old, tensor(inputs["rewards"]), tensor(inputs["mask"]))
    assert loss == pytest.approx(expected["loss"], abs=3e-6)
    assert metrics["vf_clipfrac"] == pytest.approx(expected["clipfrac"], abs=3e-6)


def test_like_easyr1() -> None:
    golden = read("forks.json")
    expected = golden["value_loss"]
    values, returns = tensor(expected["vpreds"]), tensor(expected["returns"])
    loss, _, metrics = _run(values, tensor(golden["values"]), returns, tensor(golden["adv_inputs"]["mask"]))
    assert loss == pytest.approx(expected["loss"], abs=3e-6)
    assert metrics == pytest.approx(expected["metrics"], abs=3e-6)


@pytest.mark.parametrize(
    ("value", "loss", "slope", "clipped"),
    [
        (0.4, 0.5 * 1.6**2, -1.6, 0.0),  # within reach of the old value 0: an ordinary squared error
        (1.0, 0.5 * 1.5**2, 0.0, 1.0),  # went further towards the return than it may: no gradient
        (-1.0, 0.5 * 3.0**2, -3.0, 0.0),  # went the wrong way: pulled back
    ],
)
def test_regions_by_hand(value: float, loss: float, slope: float, clipped: float) -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    ours, grad, metrics = _run(one * value, one * 0, one * 2, one)
    assert (ours, float(grad)) == pytest.approx((loss, slope))
    assert metrics == pytest.approx({"vf_clipfrac": clipped, "vpred_mean": value})


@pytest.mark.parametrize("mode", MODES)
def test_what_lies_outside_the_mask_has_no_effect(mode: str) -> None:
    mask = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    x = torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(1))
    clean = _run(*x, mask, mode)
    for junk in (math.inf, math.nan):
        loss, grad, metrics = _run(*(torch.where(mask.bool(), each, junk) for each in x), mask, mode)
        assert (loss, metrics) == (clean[0], clean[2])
        assert torch.equal(grad, clean[1])
