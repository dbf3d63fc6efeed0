from __future__ import annotations

import math

import pytest
import torch
from algos.golden import read, tensor
from torch import Tensor

from whet.algos import find_policy_loss
from whet.algos.aggregate import Aggregator, count
from whet.algos.registry import LossInputs
from whet.config.actor import ActorConfig
from whet.errors import UserError

AVG_MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-sum")


def _run(
    new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, config: ActorConfig, mode: str
) -> tuple[float, Tensor, dict[str, float]]:
    new = new.clone().requires_grad_()
    aggregate = Aggregator(mode, count(mask, horizon=mask.shape[1]))
    loss, metrics = find_policy_loss("default")(LossInputs(new, old, advantages, mask), config, aggregate)
    loss.backward()
    assert not any(value.requires_grad for value in metrics.values())
    return float(loss.detach()), new.grad, {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("mode", AVG_MODES)
def test_ppo_in_every_mode_like_verl(mode: str) -> None:
    golden = read("verl_0.9.1.json")
    inputs, expected = golden["inputs"], golden["policy_loss"][f"vanilla/{mode}"]
    config = ActorConfig(clip_ratio_low=0.2, clip_ratio_high=0.28, clip_ratio_dual=3.0)
    new, old, A, mask = (tensor(inputs[k]) for k in ("log_prob", "old_log_prob", "adv_for_loss", "mask"))
    loss, grad, metrics = _run(new, old, A, mask, config, mode)
    assert loss == pytest.approx(expected["loss"], abs=2e-6)
    torch.testing.assert_close(grad, tensor(expected["grad"]), atol=2e-6, rtol=0)
    assert metrics["pg_clipfrac_higher"] == pytest.approx(expected["metrics"]["actor/pg_clipfrac"], abs=2e-6)
    assert metrics["pg_clipfrac_lower"] == pytest.approx(expected["metrics"]["actor/pg_clipfrac_lower"], abs=2e-6)
    assert metrics["ppo_kl"] == pytest.approx(expected["metrics"]["actor/ppo_kl"], abs=2e-6)


@pytest.mark.parametrize("mode", ["token", "seq"])
@pytest.mark.parametrize("entry", ["default", "default_dual1.3"])
def test_ppo_like_easyr1(entry: str, mode: str) -> None:
    golden = read("forks.json")
    inputs, expected = golden["loss_inputs"], golden[f"easyr1.loss.{entry}.{mode}"]
    new, old, A = (tensor(inputs[k]) for k in ("new", "old", "adv"))
    loss, grad, metrics = _run(new, old, A, tensor(golden["adv_inputs"]["mask"]), ActorConfig(**expected["kw"]), mode)
    assert loss == pytest.approx(expected["loss"], abs=1e-6)
    torch.testing.assert_close(grad, tensor(expected["grad"]), atol=1e-6, rtol=0)
    for name in ("pg_clipfrac_higher", "pg_clipfrac_lower", "ppo_kl"):
        assert metrics[name] == pytest.approx(expected["metrics"][name], abs=1e-6)


def test_ppo_without_dual_clip_like_or1() -> None:
    golden = read("forks.json")
    inputs, expected = golden["loss_inputs"], golden["or1.loss"]
    config = ActorConfig(clip_ratio_low=0.2, clip_ratio_high=0.2, clip_ratio_dual=1e9)
    new, old, A = (tensor(inputs[k]) for k in ("new", "old", "adv"))
    loss, grad, metrics = _run(new, old, A, tensor(golden["adv_inputs"]["mask"]), config, "token")
    assert loss == pytest.approx(expected["loss"], abs=1e-6)
    torch.testing.assert_close(grad, tensor(expected["grad"]), atol=1e-6, rtol=0)
    assert metrics["pg_clipfrac_higher"] == pytest.approx(expected["clipfrac"], abs=1e-6)


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope"),
    [
        (1.0, 1.1, -1.1, -1.1),  # inside the bounds
        (1.0, 1.5, -1.3, 0.0),  # good and already more likely: clipped above
        (1.0, 0.5, -0.5, -0.5),  # good and less likely: pulled back
        (-1.0, 0.5, 0.8, 0.0),  # bad and already less likely: clipped below
        (-1.0, 2.0, 2.0, 2.0),  # bad and more likely: pushed down
        (-1.0, 4.0, 3.0, 0.0),  # so much more likely that the dual clip holds
    ],
)
def test_ppo_regions_by_hand(advantage: float, ratio: float, loss: float, slope: float) -> None:
    config = ActorConfig(clip_ratio_low=0.2, clip_ratio_high=0.3, clip_ratio_dual=3.0)
    one = torch.ones(1, 1, dtype=torch.float64)
    value, grad, metrics = _run(one * math.log(ratio), one * 0, one * advantage, one, config, "token")
    assert value == pytest.approx(loss)
    assert float(grad) == pytest.approx(slope)
    assert metrics["ppo_kl"] == pytest.approx(-math.log(ratio))


@pytest.mark.parametrize("junk", [math.inf, -math.inf, math.nan, 1e38])
@pytest.mark.parametrize("field", ["new", "old", "advantages"])
def test_what_lies_outside_the_mask_has_no_effect(field: str, junk: float) -> None:
    mask = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    clean = {name: torch.randn(3, 3, generator=torch.Generator().manual_seed(3)) for name in ("new", "old")}
    clean["advantages"] = torch.tensor([[0.5], [-1.0], [2.0]]).expand(3, 3)
    dirty = clean | {field: torch.where(mask.bool(), clean[field], junk)}
    for mode in AVG_MODES:
        expected = _run(clean["new"], clean["old"], clean["advantages"], mask, ActorConfig(), mode)
        ours = _run(dirty["new"], dirty["old"], dirty["advantages"], mask, ActorConfig(), mode)
        assert ours[0] == expected[0]
        assert torch.equal(ours[1], expected[1])
        assert torch.all(ours[1][mask == 0] == 0)
        assert ours[2] == expected[2]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="loss_type=ppo"):
        find_policy_loss("ppo")
