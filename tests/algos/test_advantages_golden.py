"""Every estimator against the numbers of the packages it is known from, their quirks included, and without them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from algos.golden import groups, read, tensor

from whet.algos import Signals, find_advantage
from whet.config.schema.algorithm import AlgorithmConfig

ATOL = 3e-6
VERL: dict[str, tuple[str, dict[str, Any]]] = {
    "gae_g0.9_l0.8": ("gae", {"gamma": 0.9, "lam": 0.8}),
    "gae_g1_l1": ("gae", {}),
    "grpo": ("grpo", {}),
    "grpo_nostd": ("grpo", {"norm_adv_by_std": False}),
    "grpo_vectorized": ("grpo_vectorized", {}),
    "gdpo_fallback": ("gdpo", {}),
    "grpo_passk_no_c": ("grpo_passk", {}),
    "rf++_baseline": ("reinforce_plus_plus_baseline", {}),
    "rloo": ("rloo", {}),
    "rloo_vectorized": ("rloo_vectorized", {}),
    "opo": ("opo", {}),
    "rf++_g0.9": ("reinforce_plus_plus", {"gamma": 0.9}),
    "remax": ("remax", {}),
    "gpg": ("gpg", {}),
    "otb": ("optimal_token_baseline", {}),
    "otb_notail": ("optimal_token_baseline", {"otb_zero_tail": False}),
    "tir_otb": ("tir_optimal_token_baseline", {}),
}
FORKS = [
    *(f"{fork}.{name}" for fork in ("easyr1", "vppo") for name in ("grpo", "grpo_passk", "rloo")),
    *(f"{fork}.reinforce_plus_plus.{gamma}" for fork in ("easyr1", "vppo") for gamma in ("g1", "g0.9")),
    *("or1.grpo", "or1.reinforce_plus_plus.g0.9", "or1.remax", "or1.gae"),
]
# Where whitening mixes the singleton's score into everybody's numbers, only verl's own treatment of it gives them.
MIXED = ("gdpo_fallback", "rf++_baseline")
QUIRKY = (*MIXED, "gpg")  # verl's scale of GPG counts scores that are not 0


def _verl(entry: str) -> tuple[Signals, dict[str, Any], torch.Tensor, torch.Tensor]:
    golden = read("verl_0.9.1.json")
    inputs, expected = golden["inputs"], golden["adv"][entry]
    B = len(expected["adv"])  # grpo_passk_no_c leaves out the last row
    signals = Signals(
        *(tensor(inputs[name])[:B] for name in ("mask", "rewards")),
        groups(inputs["index"])[:B],
        tensor(inputs["old_log_prob"])[:B],
        values_BT=tensor(inputs["values"])[:B],
        sum_pi_squared_BT=tensor(inputs["sum_pi_squared"])[:B],
        baselines_B=tensor(inputs["reward_baselines"])[:B],
    )
    return signals, inputs, tensor(expected["adv"]), tensor(expected["ret"])


def _forks() -> tuple[Signals, dict[str, Any]]:
    golden = read("forks.json")
    inputs = golden["adv_inputs"]
    mask = tensor(inputs["mask"])
    return Signals(
        mask,
        tensor(inputs["token_level_rewards"]),
        groups(inputs["index"]),
        torch.zeros(mask.shape),
        values_BT=tensor(golden["values"]),
        baselines_B=tensor(golden["reward_baselines"]),
    ), golden


def test_every_entry_is_here() -> None:
    assert VERL.keys() == read("verl_0.9.1.json")["adv"].keys()
    entries = {name for name, entry in read("forks.json").items() if isinstance(entry, dict) and "ret" in entry}
    assert set(FORKS) == entries


@pytest.mark.parametrize("entry", VERL)
def test_like_verl(entry: str) -> None:
    signals, _, advantages, returns = _verl(entry)
    name, settings = VERL[entry]
    ours = find_advantage(name)(signals, AlgorithmConfig(match="verl", **settings))
    torch.testing.assert_close(ours[0], advantages, atol=ATOL, rtol=0)
    torch.testing.assert_close(ours[1], returns, atol=ATOL, rtol=0)


@pytest.mark.parametrize("entry", VERL)
def test_by_default_like_verl_where_it_has_no_quirk(entry: str) -> None:
    signals, inputs, advantages, returns = _verl(entry)
    name, settings = VERL[entry]
    ours = find_advantage(name)(signals, AlgorithmConfig(**settings))
    outside = signals.mask_BT == 0
    assert torch.all(ours[0][outside] == 0)
    assert torch.all(ours[1][outside] == 0)
    compares = name not in ("gae", "remax", "reinforce_plus_plus")
    if compares:  # rows 3 and 4 score the same, row 5 is alone
        assert inputs["index"] == ["a", "a", "a", "b", "b", "c"]
        assert torch.all(ours[0][3:] == 0)
    if entry not in QUIRKY:
        rows = slice(0, 3) if compares else slice(None)
        inside = signals.mask_BT[rows].bool()
        torch.testing.assert_close(ours[0][rows][inside], advantages[rows][inside], atol=ATOL, rtol=0)
        torch.testing.assert_close(ours[1][rows][inside], returns[rows][inside], atol=ATOL, rtol=0)


@pytest.mark.parametrize("name", ["gdpo", "reinforce_plus_plus_baseline"])
def test_whitening_is_verls_where_every_group_says_something(name: str) -> None:
    signals, _, _, _ = _verl("gdpo_fallback")
    signals.rewards_BT[4, 3] = 0.25
    for field in ("mask_BT", "rewards_BT", "groups_B"):
        setattr(signals, field, getattr(signals, field)[:5])
    ours, _ = find_advantage(name)(signals, AlgorithmConfig())
    verls, _ = find_advantage(name)(signals, AlgorithmConfig(match="verl"))
    assert torch.equal(ours, verls)


@pytest.mark.parametrize("entry", FORKS)
def test_like_the_forks(entry: str) -> None:
    signals, golden = _forks()
    fork, name, *gamma = entry.split(".", 2)
    settings = {"gamma": 0.99, "lam": 0.95} if name == "gae" else {"gamma": float(gamma[0][1:])} if gamma else {}
    ours = find_advantage(name)(signals, AlgorithmConfig(match=fork, **settings))
    torch.testing.assert_close(ours[0], tensor(golden[entry]["adv"]), atol=ATOL, rtol=0)
    torch.testing.assert_close(ours[1], tensor(golden[entry]["ret"]), atol=ATOL, rtol=0)
    if fork != "vppo" or name != "grpo_passk":  # whose raw scores are the one quirk inside the mask
        plain = find_advantage(name)(signals, AlgorithmConfig(**settings))
        inside = signals.mask_BT.bool()
        torch.testing.assert_close(plain[0][inside], tensor(golden[entry]["adv"])[inside], atol=ATOL, rtol=0)
        assert torch.all(plain[0][~inside] == 0)


@pytest.mark.parametrize("fork", ["easyr1", "vppo"])
def test_what_the_forks_cannot_compute(fork: str) -> None:
    """Both raise in ReMax and GAE; ours are the ones that OR1 and verl have."""
    signals, golden = _forks()
    assert "ERROR" in golden[f"{fork}.remax"]
    assert "ERROR" in golden[f"{fork}.gae"]
    remax, _ = find_advantage("remax")(signals, AlgorithmConfig(match=fork))
    torch.testing.assert_close(remax, tensor(golden["or1.remax"]["adv"]), atol=ATOL, rtol=0)
    gae, returns = find_advantage("gae")(signals, AlgorithmConfig(match=fork, gamma=0.99, lam=0.95))
    inside = signals.mask_BT.bool()
    torch.testing.assert_close(gae[inside], tensor(golden["or1.gae"]["adv"])[inside], atol=ATOL, rtol=0)
    torch.testing.assert_close(returns[inside], tensor(golden["or1.gae"]["ret"])[inside], atol=ATOL, rtol=0)
