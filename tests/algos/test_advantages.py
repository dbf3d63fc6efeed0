"""Every estimator against its equation written out with loops, and the rules that all of them keep."""

from __future__ import annotations

import math
from statistics import mean, stdev

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whet.algos import Signals, find_advantage, needs_of
from whet.config.schema.algorithm import ADVANTAGES, AlgorithmConfig
from whet.errors import UserError

# Those that read signals of their own have tests of their own: test_recipe_objectives.py, training/test_history.py.
NAMES = [name for name in ADVANTAGES.names if name not in ("flowrl", "gigpo", "prime", "rae", "spin", "sppo", "spo")]


def _signals(scores: list[float], group: list[int], mask: Tensor | None = None) -> Signals:
    mask = torch.ones(len(scores), 3) if mask is None else mask
    rewards = torch.zeros(mask.shape)
    rewards[:, -1] = torch.tensor(scores)
    return Signals(
        mask,
        rewards,
        torch.tensor(group),
        torch.full(mask.shape, -0.5),
        values_BT=torch.full(mask.shape, 0.3),
        sum_pi_squared_BT=torch.full(mask.shape, 0.6),
        baselines_B=torch.full((len(scores),), 0.25),
    )


@st.composite
def batches(draw: st.DrawFn) -> Signals:
    """Responses with tools in between, some without a token; scores with ties; signals that are noise outside the mask.

    The score sits where a trainer puts it, on the last token of the response, whoever wrote that.
    """
    B, T = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    rows = st.lists(st.sampled_from([0.0, 1.0, 1.0]), min_size=T, max_size=T)
    mask = torch.tensor(draw(st.lists(rows, min_size=B, max_size=B)))
    scores = draw(st.lists(st.sampled_from([0.0, 0.1, 0.7, 1.0, -1.0]), min_size=B, max_size=B))
    group = draw(st.lists(st.integers(0, 2), min_size=B, max_size=B))
    signals = _signals(scores, group, mask)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    signals.values_BT = torch.randn(B, T, generator=generator)
    signals.old_log_probs_BT = -torch.rand(B, T, generator=generator)
    signals.sum_pi_squared_BT = torch.rand(B, T, generator=generator)
    return signals


def _written(signals: Signals) -> list[list[int]]:
    """The positions of each row that the model wrote."""
    return [[t for t, inside in enumerate(row) if inside] for row in signals.mask_BT.tolist()]


def _scores(signals: Signals) -> list[float]:
    return signals.rewards_BT.double().sum(dim=1).tolist()


def _members(signals: Signals, row: int) -> list[int]:
    return [i for i, group in enumerate(signals.groups_B.tolist()) if group == int(signals.groups_B[row])]


def _silent(signals: Signals, row: int) -> bool:
    return len({_scores(signals)[i] for i in _members(signals, row)}) == 1


def _whitened(rows: list[dict[int, float]]) -> list[dict[int, float]]:
    values = [value for row in rows for value in row.values()]
    if len(values) < 2:
        return [dict.fromkeys(row, 0.0) for row in rows]
    centre, spread = mean(values), math.sqrt(stdev(values) ** 2 + 1e-8)
    return [{t: (value - centre) / spread for t, value in row.items()} for row in rows]


def _by_score(name: str, signals: Signals) -> list[dict[int, float]]:
    """Estimators that give every token of a response the same number."""
    scores, written, out = _scores(signals), _written(signals), []
    for row, tokens in enumerate(written):
        members = _members(signals, row)
        group, s = [scores[i] for i in members], scores[row]
        if len(set(group)) == 1:
            value = 0.0
        elif name in ("grpo", "grpo_vectorized", "gdpo"):
            value = (s - mean(group)) / (stdev(group) + 1e-6)
        elif name in ("rloo", "rloo_vectorized"):
            value = s - mean([scores[i] for i in members if i != row])
        elif name == "opo":
            lengths = [len(written[i]) for i in members]
            value = s - sum(n * x for n, x in zip(lengths, group)) / max(sum(lengths), 1)
        elif name == "gpg":
            telling = sum(not _silent(signals, i) for i in range(len(scores)))
            value = (s - mean(group)) * len(scores) / telling
        elif name in ("reinforce_plus_plus_baseline", "dr_grpo"):
            value = s - mean(group)
        elif name == "maxrl":
            value = (s - mean(group)) / mean(group) if mean(group) > 0 else 0.0
        else:
            best, second = sorted(group, reverse=True)[:2]
            value = (best - second) / (stdev(group) + 1e-6) if s == best else 0.0  # a tie at the top leads by 0
        out.append(dict.fromkeys(tokens, value))
    if name in ("gdpo", "reinforce_plus_plus_baseline"):
        out = _whitened(out)
        out = [dict.fromkeys(each, 0.0) if _silent(signals, row) else each for row, each in enumerate(out)]
    return out


def _by_token(name: str, signals: Signals) -> list[dict[int, float]]:
    """Estimators that look at tokens, on each response cut down to what the model wrote."""
    scores, out = _scores(signals), []
    for row, tokens in enumerate(_written(signals)):
        later, next_value, values = 0.0, 0.0, {}
        for t in reversed(tokens):
            reward = scores[row] if t == tokens[-1] else 0.0
            if name == "gae":
                value = float(signals.values_BT[row, t])
                later = reward + 0.9 * next_value - value + 0.9 * 0.8 * later
                next_value = value
            else:
                later = reward + 0.9 * later
            values[t] = later
        if name == "remax":
            values = dict.fromkeys(tokens, scores[row] - 0.25)
        out.append(values)
    return out if name == "remax" else _whitened(out)


def _optimal_baseline(name: str, signals: Signals) -> list[dict[int, float]]:
    scores, written, out = _scores(signals), _written(signals), []
    place = [{t: k if name.startswith("tir") else t for k, t in enumerate(tokens)} for tokens in written]

    def energy(row: int, column: int) -> float:
        pi, squares = signals.old_log_probs_BT.double().exp(), signals.sum_pi_squared_BT.double()
        return sum(float(1 - 2 * pi[row, t] + squares[row, t]) for t in written[row] if place[row][t] <= column)

    for row, tokens in enumerate(written):
        members = [i for i in _members(signals, row) if written[i]]
        equal = len({scores[i] for i in members}) == 1
        out.append({})
        for t in tokens:
            column = place[row][t]
            here = [i for i in members if column in place[i].values()]
            weights = [energy(i, column) for i in here]
            baseline = sum(w * scores[i] for w, i in zip(weights, here)) / (sum(weights) + 1e-8)
            others = [max(place[i].values()) for i in members if i != row]
            if all(column > end for end in others):
                baseline = 0.0
            out[row][t] = 0.0 if equal else scores[row] - baseline
    return out


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(signals=batches())
def test_like_its_equation(name: str, signals: Signals) -> None:
    if name in ("gae", "remax", "reinforce_plus_plus"):
        expected = _by_token(name, signals)
    elif name.endswith("optimal_token_baseline"):
        expected = _optimal_baseline(name, signals)
    else:
        expected = _by_score(name, signals)
    reference = torch.zeros(signals.mask_BT.shape, dtype=torch.float64)
    for row, values in enumerate(expected):
        for t, value in values.items():
            reference[row, t] = value
    ours, _ = find_advantage(name)(signals, AlgorithmConfig(gamma=0.9, lam=0.8))
    # Values that differ by rounding alone are whitened by 1e-4 at least, which makes 1e-3 of it.
    whitens = name == "gae" or name.startswith("reinforce_plus_plus")
    torch.testing.assert_close(ours.double(), reference, atol=1e-3 if whitens else 1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(signals=batches())
def test_exact_zeros(name: str, signals: Signals) -> None:
    outside = signals.mask_BT == 0
    for field in ("values_BT", "old_log_probs_BT", "sum_pi_squared_BT"):  # nothing out there may matter
        getattr(signals, field)[outside] = float("nan") if field != "values_BT" else 1e30
    advantages, returns = find_advantage(name)(signals, AlgorithmConfig())
    assert advantages.dtype == returns.dtype == torch.float32
    for values in (advantages, returns):
        assert torch.all(torch.isfinite(values))
        assert torch.all(values[outside] == 0)
    if AlgorithmConfig(adv_estimator=name).compares_groups:
        for row in range(len(advantages)):
            assert not _silent(signals, row) or torch.all(advantages[row] == 0)


@pytest.mark.parametrize("name", [name for name in NAMES if AlgorithmConfig(adv_estimator=name).compares_groups])
@pytest.mark.parametrize("std", [True, False])
def test_equal_scores_and_single_responses_are_exactly_zero(name: str, std: bool) -> None:
    estimate, config = find_advantage(name), AlgorithmConfig(norm_adv_by_std=std)
    lengths = torch.tensor([[1.0] * n + [0.0] * (3 - n) for n in (3, 2, 1, 2, 1, 2, 1)])
    assert torch.all(estimate(_signals([0.7] * 7, [0] * 7, lengths), config)[0] == 0)
    assert torch.all(estimate(_signals([0.1, 0.7, 1 / 3], [4, 9, 2]), config)[0] == 0)
    mixed, _ = estimate(_signals([0.7] * 3 + [0.1, 0.3], [0, 0, 0, 1, 1]), config)
    assert torch.all(mixed[:3] == 0)
    assert torch.any(mixed[3:] != 0)


@pytest.mark.parametrize("name", NAMES)
def test_rows_may_come_in_any_order(name: str) -> None:
    signals = _signals([1.0, 0.0, 0.3, 0.5, 0.2, 0.9], [0, 1, 0, 1, 2, 2])
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    plain, _ = find_advantage(name)(signals, AlgorithmConfig())
    fields = ("mask_BT", "rewards_BT", "groups_B", "old_log_probs_BT", "values_BT", "sum_pi_squared_BT", "baselines_B")
    for field in fields:
        setattr(signals, field, getattr(signals, field)[order])
    shuffled, _ = find_advantage(name)(signals, AlgorithmConfig())
    torch.testing.assert_close(shuffled, plain[order], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gdpo"])
def test_one_token_has_no_variance_to_whiten_by(name: str) -> None:
    one = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    for mask in (one, torch.zeros_like(one)):
        advantages, _ = find_advantage(name)(_signals([1.0, 0.0], [0, 0], mask), AlgorithmConfig())
        assert torch.all(advantages == 0)


def test_a_tools_last_word_does_not_lose_the_reward() -> None:
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]])
    signals = _signals([1.0, 0.5], [0, 0], mask)
    for name in ("remax", "reinforce_plus_plus", "gae", "optimal_token_baseline", "tir_optimal_token_baseline"):
        _, returns = find_advantage(name)(signals, AlgorithmConfig())
        torch.testing.assert_close(returns, torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.5, 0.0, 0.5, 0.5]]))
        _, lost = find_advantage(name)(signals, AlgorithmConfig(match="verl"))
        if name != "gae":  # where it is the critic's value that is left
            assert torch.all(lost[0] == 0)


def test_importance_weights_count_squared_in_the_optimal_baseline() -> None:
    signals = _signals([1.0, 0.0], [0, 0])
    signals.weights_BT = torch.tensor([[2.0] * 3, [1.0] * 3])
    ours, _ = find_advantage("optimal_token_baseline")(signals, AlgorithmConfig())
    torch.testing.assert_close(ours, torch.tensor([[0.2] * 3, [-0.8] * 3]))  # baseline 4·1 / (4 + 1)


def test_gdpo_adds_each_reward_normalised_on_its_own() -> None:
    signals = _signals([0.0] * 4, [0, 0, 1, 1])
    signals.scores = {"right": torch.tensor([1.0, 0.0, 0.0, 0.0]), "short": torch.tensor([100.0, 0.0, 0.0, 900.0])}
    config = AlgorithmConfig(gdpo_reward_keys=["right", "short"], gdpo_reward_weights=[1.0, 0.5])
    ours, _ = find_advantage("gdpo")(signals, config)
    half = 0.5**0.5
    raw = torch.tensor([1.5 * half, -1.5 * half, -0.5 * half, 0.5 * half])[:, None].repeat(1, 3)
    torch.testing.assert_close(ours, raw / raw.std(), atol=1e-5, rtol=0)
    with pytest.raises(UserError, match=r"gdpo_reward_keys: the reward function gives no fast \(it gives right, short"):
        find_advantage("gdpo")(signals, AlgorithmConfig(gdpo_reward_keys=["fast"]))


def test_grpo_by_hand() -> None:
    signals = _signals([1.0, 0.0, 0.0, 0.0, 3.0, 5.0], [7, 7, 7, 7, 2, 2])
    ours = find_advantage("grpo")(signals, AlgorithmConfig())[0][:, 0]
    # mean 1/4, std 1/2; mean 4, std √2
    expected = torch.tensor([1.5, -0.5, -0.5, -0.5, -(0.5**0.5), 0.5**0.5])
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)
    plain = find_advantage("grpo")(signals, AlgorithmConfig(norm_adv_by_std=False))[0][:, 0]
    torch.testing.assert_close(plain, torch.tensor([0.75, -0.25, -0.25, -0.25, -1.0, 1.0]))


def test_what_is_computed_beforehand() -> None:
    needs = {"gae": ("values",), "remax": ("baselines",)}
    needs |= {"flowrl": ("reference",), "gigpo": ("states",), "prime": ("reference", "process_rewards")}
    needs |= dict.fromkeys(("optimal_token_baseline", "tir_optimal_token_baseline"), ("sum_pi_squared",))
    assert {name: needs_of(name) for name in ADVANTAGES.names if needs_of(name)} == needs


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UserError, match=r"adv_estimator=gpro.*did you mean grpo"):
        find_advantage("gpro")
    with pytest.raises(UserError, match=r"algorithm.match=verll: choose one of whet, verl"):
        find_advantage("grpo")(_signals([1.0, 0.0], [0, 0]), AlgorithmConfig(match="verll"))
