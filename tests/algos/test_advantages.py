from __future__ import annotations

import pytest
import torch
from algos.golden import groups, read, tensor
from hypothesis import given
from hypothesis import strategies as st

from whet.algos import Signals, find_advantage
from whet.config.algorithm import AlgorithmConfig
from whet.errors import UserError


def _signals(scores: list[float], group: list[int], mask: torch.Tensor | None = None) -> Signals:
    mask = torch.ones(len(scores), 3) if mask is None else mask
    rewards = torch.zeros(mask.shape)
    rewards[:, -1] = torch.tensor(scores)
    return Signals(mask, rewards, torch.tensor(group), torch.zeros(mask.shape))


def _advantages(name: str, signals: Signals, std: bool = True) -> torch.Tensor:
    advantages, returns = find_advantage(name)(signals, AlgorithmConfig(norm_adv_by_std=std))
    assert torch.equal(advantages, returns)
    return advantages


@pytest.mark.parametrize(
    ("name", "std", "entry"),
    [
        ("grpo", True, "grpo"),
        ("grpo", False, "grpo_nostd"),
        ("grpo_vectorized", True, "grpo_vectorized"),
        ("rloo", True, "rloo"),
        ("rloo_vectorized", True, "rloo_vectorized"),
    ],
)
def test_like_verl_but_for_singletons(name: str, std: bool, entry: str) -> None:
    golden = read("verl_0.9.1.json")
    inputs = golden["inputs"]
    assert inputs["index"][5] not in inputs["index"][:5]
    mask, rewards = tensor(inputs["mask"]), tensor(inputs["rewards"])
    signals = Signals(mask, rewards, groups(inputs["index"]), torch.zeros(mask.shape))
    ours = _advantages(name, signals, std)
    theirs = tensor(golden["adv"][entry]["adv"])
    torch.testing.assert_close(ours[:5], theirs[:5], atol=2e-6, rtol=0)
    assert torch.all(ours[5] == 0)  # verl gives some of its estimators' singletons their raw score


@pytest.mark.parametrize("entry", ["easyr1.grpo", "vppo.grpo", "or1.grpo", "easyr1.rloo", "vppo.rloo"])
def test_like_the_forks(entry: str) -> None:
    golden = read("forks.json")
    inputs = golden["adv_inputs"]
    mask, rewards = tensor(inputs["mask"]), tensor(inputs["token_level_rewards"])
    signals = Signals(mask, rewards, groups(inputs["index"]), torch.zeros(mask.shape))
    ours = _advantages(entry.split(".")[1], signals)
    torch.testing.assert_close(ours, tensor(golden[entry]["adv"]), atol=1e-6, rtol=0)


def test_grpo_by_hand() -> None:
    signals = _signals([1.0, 0.0, 0.0, 0.0, 3.0, 5.0], [7, 7, 7, 7, 2, 2])
    ours = _advantages("grpo", signals)[:, 0]
    # mean 1/4, std 1/2; mean 4, std √2
    expected = torch.tensor([1.5, -0.5, -0.5, -0.5, -(0.5**0.5), 0.5**0.5])
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)
    plain = _advantages("grpo", signals, std=False)[:, 0]
    torch.testing.assert_close(plain, torch.tensor([0.75, -0.25, -0.25, -0.25, -1.0, 1.0]))


def test_rloo_by_hand() -> None:
    ours = _advantages("rloo", _signals([1.0, 0.0, 2.0], [0, 0, 0]))[:, 0]
    torch.testing.assert_close(ours, torch.tensor([0.0, -1.5, 1.5]))


@pytest.mark.parametrize("name", ["grpo", "rloo"])
@pytest.mark.parametrize("std", [True, False])
def test_equal_scores_are_exactly_zero(name: str, std: bool) -> None:
    assert torch.all(_advantages(name, _signals([0.7] * 7, [0] * 7), std) == 0)
    assert torch.all(_advantages(name, _signals([0.1, 0.7, 1 / 3], [4, 9, 2]), std) == 0)  # one response each


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_exactly_zero_outside_the_mask(name: str) -> None:
    mask = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    ours = _advantages(name, _signals([1.0, 0.2, 0.4], [0, 0, 0], mask))
    assert torch.all(ours[mask == 0] == 0)
    assert torch.all(ours[0, [0, 2]] == ours[0, 0])
    assert ours[0, 0] > 0 > ours[1, 0]


@given(
    scores=st.lists(st.floats(-5, 5, width=16), min_size=1, max_size=12),
    group=st.data(),
    name=st.sampled_from(["grpo", "rloo"]),
    std=st.booleans(),
)
def test_a_group_sums_to_zero_and_is_alone(scores: list[float], group: st.DataObject, name: str, std: bool) -> None:
    numbers = group.draw(st.lists(st.integers(0, 3), min_size=len(scores), max_size=len(scores)))
    ours = _advantages(name, _signals(scores, numbers), std)[:, 0].double()
    for g in set(numbers):
        rows = [i for i, number in enumerate(numbers) if number == g]
        assert abs(float(ours[rows].sum())) < 1e-5 * (1 + float(ours[rows].abs().max()))
        alone = _advantages(name, _signals([scores[i] for i in rows], [0] * len(rows)), std)[:, 0].double()
        torch.testing.assert_close(ours[rows], alone, atol=1e-6, rtol=1e-6)


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UserError, match=r"adv_estimator=gpro.*did you mean grpo"):
        find_advantage("gpro")
