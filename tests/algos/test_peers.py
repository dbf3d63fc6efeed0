"""Losses and advantages against numbers of TRL 1.16.0, verl 0.9.1 and the authors' own code (`peers.json`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from algos.golden import groups, peers
from torch import Tensor

from whet.algos import find_advantage, find_policy_loss, preparation_of
from whet.algos.aggregate import Aggregator, count
from whet.algos.registry import LossInputs, Signals
from whet.config.schema.actor import ActorConfig
from whet.config.schema.algorithm import AlgorithmConfig, PrimeConfig

PEERS = peers()
HORIZON = 9  # longest response allowed
CLIP = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
NEVER = 1e9  # a bound that nothing reaches
# TRL's name: our loss, how it is averaged, its settings.
TRL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "grpo": ("default", "seq", {**CLIP, "clip_ratio_dual": NEVER}),
    "grpo_delta": ("default", "seq", {**CLIP, "clip_ratio_dual": 1.5}),
    "bnpo": ("default", "token", {**CLIP, "clip_ratio_dual": NEVER}),
    "dapo": ("default", "token", {**CLIP, "clip_ratio_dual": NEVER}),
    "dapo_weights": ("default", "token", {**CLIP, "clip_ratio_dual": NEVER}),
    "dr_grpo": ("default", "seq-mean-token-sum-norm", {**CLIP, "clip_ratio_dual": NEVER}),
    "gspo": ("gspo", "seq", {"clip_ratio_low": 0.03, "clip_ratio_high": 0.04}),
    "luspo": ("luspo", "token", {"clip_ratio_low": 0.03, "clip_ratio_high": 0.04}),
    "cispo": ("cispo", "token", {"clip_ratio_low": 1.0, "clip_ratio_high": 0.3}),  # TRL's bound is 1.3 itself
    "sapo": ("sapo", "seq", {}),
    "vespo": ("vespo", "token", {}),
    "vespo_weights": ("vespo", "token", {}),
    "off_policy_mask": ("off_policy_mask", "seq", {**CLIP, "clip_ratio_dual": 3.0, "off_policy_delta": 0.02}),
    "gmpo": ("geo_mean", "seq", {"clip_ratio_low": 0.4, "clip_ratio_high": 0.4}),
    "gmpo_narrow": ("geo_mean", "seq", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.15}),
}
AUTHORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vespo": ("vespo", "token", {}),
    "vespo_weights": ("vespo", "token", {}),
    "kl_cov": ("kl_cov", "token", {"kl_cov_ratio": 0.15}),
    "kl_cov_one": ("kl_cov", "token", {"kl_cov_ratio": 2e-4}),
    # Every candidate is drawn, so that the draw is nobody's own.
    "clip_cov": (
        *("clip_cov", "token"),
        {"clip_ratio_low": 1.0, "clip_ratio_high": 1.0, "clip_cov_ratio": 1.0, "clip_cov_lb": 0.05},
    ),
    "dppo_binary_tv": ("dppo_tv", "token", {"clip_ratio_low": 0.05, "clip_ratio_high": 0.06, "dppo_ratio_max": 1.2}),
    "dppo_binary_kl": ("dppo_kl", "token", {"clip_ratio_low": 0.05, "clip_ratio_high": 0.06, "dppo_ratio_max": 1.2}),
    "sppo_recipe": ("sppo", "token", {"sppo_eta": 2.5}),
    # The authors' code computes the clipped weight and multiplies by the other one.
    "flowrl": ("flowrl", "token", {"clip_ratio_low": 1.0, "clip_ratio_high": NEVER}),
}


def _tensor(rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def _check(entry: str, expected: dict[str, Any], row: tuple[str, str, dict[str, Any]], rows: list[int]) -> None:
    """Compare loss and gradient on some rows of the inputs."""
    name, mode, settings = row
    given = {key: _tensor(PEERS["inputs"][key])[rows] for key in ("log_probs", "old_log_probs", "mask")}
    advantages = _tensor(PEERS["inputs"]["advantages"])[rows, None]
    if entry == "flowrl":
        ref, log_z = (_tensor(PEERS["inputs"][key])[rows] for key in ("ref_log_probs", "log_z"))
        lengths = given["mask"].sum(1).clamp(min=1)
        advantages = 15.0 * advantages + ((ref * given["mask"]).sum(1) / lengths - log_z)[:, None]
    log_probs = given["log_probs"].requires_grad_()
    inputs = LossInputs(log_probs, given["old_log_probs"], advantages.expand_as(log_probs), given["mask"])
    if entry.endswith("_weights"):
        inputs.weights_BT = _tensor(PEERS["inputs"]["importance_weights"])[rows]
    config = ActorConfig(**settings)
    if (prepare := preparation_of(name)) is not None:
        with torch.no_grad():
            inputs.prepared = prepare(inputs, config)
    loss, _ = find_policy_loss(name)(inputs, config, Aggregator(mode, count(given["mask"], HORIZON)))
    (grad,) = torch.autograd.grad(loss, log_probs)
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-6, abs=1e-8)
    torch.testing.assert_close(grad, _tensor(expected["grad"]), rtol=1e-5, atol=1e-8)
    assert float(grad.abs().max()) > 1e-3


@pytest.mark.parametrize("entry", TRL)
def test_losses_like_trl(entry: str) -> None:
    """TRL divides by all responses, ours by those with tokens; the empty one is left out of the comparison."""
    assert set(TRL) == set(PEERS["trl"]["losses"])
    _check(entry, PEERS["trl"]["losses"][entry], TRL[entry], [0, 1, 2, 3, 4, 5, 7])


@pytest.mark.parametrize("entry", AUTHORS)
def test_losses_like_the_authors(entry: str) -> None:
    _check(entry, PEERS["authors"][entry], AUTHORS[entry], list(range(8)))


def _outcomes(scores: list[float], mask: Tensor) -> Tensor:
    """Rewards (B, T) with each response's score on its last token."""
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    for row, score in enumerate(scores):
        rewards[row, max(mask[row].nonzero().flatten().tolist(), default=0)] = score
    return rewards


def test_maxrl_like_its_authors() -> None:
    """Their divisor is mean + 1e-6, which makes a million of a single response's score; ours is 0."""
    inputs, expected = PEERS["inputs"], _tensor(PEERS["authors"]["maxrl"])
    mask, names = _tensor(inputs["mask"]), inputs["groups"]
    signals = Signals(mask, _outcomes(inputs["scores"], mask), groups(names), torch.zeros(mask.shape))
    ours, _ = find_advantage("maxrl")(signals, AlgorithmConfig())
    several = [row for row, name in enumerate(names) if names.count(name) > 1]
    assert len(several) < len(names)
    torch.testing.assert_close(ours.double()[several], expected[several], rtol=1e-5, atol=1e-6)
    assert torch.all(ours[[row for row in range(len(names)) if row not in several]] == 0)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_prime_like_its_authors(gamma: float) -> None:
    given = PEERS["prime"]
    mask, expected = _tensor(given["mask"]), given[f"gamma_{gamma}"]
    numbers = torch.arange(len(mask)) // given["n"]
    signals = Signals(mask, _outcomes(given["scores"], mask), numbers, torch.zeros(mask.shape))
    signals.process_rewards_BT = _tensor(given["process_rewards"])
    config = AlgorithmConfig(gamma=gamma, prime=PrimeConfig(norm="none"))
    advantages, returns = find_advantage("prime")(signals, config)
    torch.testing.assert_close(returns.double(), _tensor(expected["returns"]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(advantages.double(), _tensor(expected["advantages"]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("mode", "by_std"), [("mean_std_norm", True), ("mean_norm", False)])
def test_gigpo_like_its_authors(mode: str, by_std: bool) -> None:
    """Each of three episodes has two turns: two tokens of ours, with an observation between them."""
    given = PEERS["gigpo"]
    episodes, anchors = groups(given["episodes"]), groups(given["anchors"])
    rewards, states = torch.zeros(3, 3, dtype=torch.float64), torch.full((3, 3), -1)
    rewards[:, ::2], states[:, ::2] = _tensor(given["rewards"]).view(3, 2), anchors.view(3, 2)
    assert episodes.tolist() == [0, 0, 1, 1, 2, 2]
    signals = Signals(torch.tensor([[1.0, 0.0, 1.0]] * 3), rewards, torch.zeros(3), torch.zeros(3, 3))
    signals.states_BT = states
    ours, _ = find_advantage("gigpo")(signals, AlgorithmConfig(gamma=0.95, norm_adv_by_std=by_std))
    torch.testing.assert_close(ours[:, ::2].double(), _tensor(given[mode]).view(3, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("entry", "weights"), [("equal", []), ("weighted", [0.7, 2.0])])
def test_gdpo_like_verl(entry: str, weights: list[float]) -> None:
    given = PEERS["gdpo"]
    mask = _tensor(given["mask"])
    signals = Signals(mask, torch.zeros(mask.shape), groups(given["groups"]), torch.zeros(mask.shape))
    signals.scores = {name: _tensor(given[name]) for name in ("accuracy", "format")}
    config = AlgorithmConfig(gdpo_reward_keys=["accuracy", "format"], gdpo_reward_weights=weights)
    ours, _ = find_advantage("gdpo")(signals, config)
    torch.testing.assert_close(ours.double(), _tensor(given[entry]), rtol=1e-4, atol=1e-5)
