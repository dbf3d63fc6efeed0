"""FlowRL, SPPO, SPIN, PRIME and GiGPO against their equations, written out response by response in float64."""

from __future__ import annotations

import math
from statistics import mean, stdev

import numpy as np
import pytest
import torch

from whet.algos import find_advantage, find_policy_loss, preparation_of
from whet.algos.aggregate import Aggregator, count
from whet.algos.implicit_reward import outcome_loss, process_rewards
from whet.algos.registry import LossInputs, Signals
from whet.config.schema.actor import ActorConfig
from whet.config.schema.algorithm import AlgorithmConfig, PrimeConfig

MASK = np.array([[1, 1, 1, 1, 1], [1, 0, 0, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0]])
GROUPS = [3, 3, 3, 8, 8, 5]
SCORES = [1.0, 0.0, 0.25, 0.5, 0.75, 1.0]


def _signals(scores: list[float] = SCORES, seed: int = 0) -> Signals:
    rng = np.random.default_rng(seed)
    rewards = torch.zeros(MASK.shape)
    for row, (mask, score) in enumerate(zip(MASK, scores)):
        rewards[row, np.flatnonzero(mask)[-1]] = score
    old, ref = (torch.tensor(-rng.random(MASK.shape) * 2 - 0.1) for _ in range(2))
    mask = torch.tensor(MASK, dtype=torch.float32)
    for values in (old, ref):
        values[mask == 0] = float("nan")  # nothing out there may matter
    return Signals(mask, rewards, torch.tensor(GROUPS), old, ref_log_probs_BT=ref)


def _members(row: int) -> list[int]:
    return [i for i, group in enumerate(GROUPS) if group == GROUPS[row]]


def _own_mean(values: torch.Tensor, row: int) -> float:
    return mean(float(values[row, t]) for t in np.flatnonzero(MASK[row]))


def _loss(name: str, inputs: LossInputs, config: ActorConfig, mode: str = "token") -> tuple[float, np.ndarray]:
    inputs.log_probs_BT = inputs.log_probs_BT.detach().clone().requires_grad_()
    loss, _ = find_policy_loss(name)(inputs, config, Aggregator(mode, count(inputs.mask_BT, 5)))
    loss.backward()
    return float(loss.detach()), inputs.log_probs_BT.grad.numpy()


def _normalised(row: int) -> float:
    group = [SCORES[i] for i in _members(row)]
    return (SCORES[row] - mean(group)) / (stdev(group) + 1e-6) if len(group) > 1 else 0.0


def _flow_targets(signals: Signals, beta: float) -> list[float]:
    raw = [beta * _normalised(row) + _own_mean(signals.ref_log_probs_BT, row) for row in range(len(MASK))]
    gaps = [target - _own_mean(signals.old_log_probs_BT, row) for row, target in enumerate(raw)]
    return [target - mean(gaps[i] for i in _members(row)) for row, target in enumerate(raw)]


def test_flowrl_target() -> None:
    signals = _signals()
    ours, _ = find_advantage("flowrl")(signals, AlgorithmConfig(flowrl_beta=3.0))
    expected = np.array(_flow_targets(signals, 3.0))[:, None] * MASK
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["token", "seq"])
def test_flowrl_loss(mode: str) -> None:
    rng = np.random.default_rng(4)
    old = -rng.random(MASK.shape) - 0.1
    new = old + rng.normal(size=MASK.shape) * 0.1
    target = np.repeat(rng.normal(size=(6, 1)), 5, axis=1) * MASK
    inputs = LossInputs(*(torch.tensor(each, dtype=torch.float64) for each in (new, old, target, MASK)))
    loss, grad = _loss("flowrl", inputs, ActorConfig(clip_ratio_low=0.1, clip_ratio_high=0.15), mode)
    expected, slope, clipped = 0.0, np.zeros(MASK.shape), 0
    for i, mask in enumerate(MASK):
        inside, length = mask == 1, mask.sum()
        ratio = math.exp((new[i] - old[i])[inside].sum())
        weight = min(max(ratio, 0.9), 1.15)
        clipped += weight != ratio
        residual = new[i][inside].mean() - target[i][inside][0]
        expected += weight * residual**2 / len(MASK)
        slope[i][inside] = 2 * weight * residual / length / len(MASK)
    assert 0 < clipped < len(MASK)
    assert loss == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(grad, slope, rtol=1e-9)


def test_flowrl_log_z_makes_the_residuals_smallest() -> None:
    """Within a group the residuals of the policy that sampled add up to 0: no other log Z has smaller squares."""
    signals = _signals()
    ours, _ = find_advantage("flowrl")(signals, AlgorithmConfig())
    residuals = [_own_mean(signals.old_log_probs_BT, row) - float(ours[row, 0]) for row in range(len(MASK))]
    for row in range(len(MASK)):
        assert sum(residuals[i] for i in _members(row)) == pytest.approx(0.0, abs=1e-4)


def test_sppo() -> None:
    scores = [1.0, 0.25, 0.25, 0.5, 0.5, 1.0]
    ours, _ = find_advantage("sppo")(_signals(scores), AlgorithmConfig())
    # Everybody draws with itself. 1 beats both others; the two equal ones lose to it and draw; equals; a single one.
    np.testing.assert_allclose(ours[:, 0].numpy(), [1 / 3, -1 / 6, -1 / 6, 0.0, 0.0, 0.0], atol=1e-7)
    assert torch.all(ours[torch.tensor(MASK) == 0] == 0)
    ours, rng = ours.double(), np.random.default_rng(5)
    old = -rng.random(MASK.shape) - 0.1
    new = old + rng.normal(size=MASK.shape) * 0.2
    inputs = LossInputs(*(torch.tensor(each, dtype=torch.float64) for each in (new, old, ours.numpy(), MASK)))
    for mode in ("token", "seq-mean-token-sum"):
        loss, grad = _loss("sppo", inputs, ActorConfig(sppo_eta=2.5), mode)
        gaps = ((new - old) * MASK).sum(axis=1) - 2.5 * ours[:, 0].numpy()
        assert loss == pytest.approx((gaps**2).mean(), rel=1e-9)
        np.testing.assert_allclose(grad, (2 * gaps / len(MASK))[:, None] * MASK, rtol=1e-9)


def test_spin() -> None:
    """Pairs within groups 3 and 8; group 5 has a demonstration and nothing to compare it with."""
    kinds = np.array([1.0, -1.0, -1.0, -1.0, 1.0, 1.0])
    rng = np.random.default_rng(6)
    old = -rng.random(MASK.shape) - 0.1
    new = old + rng.normal(size=MASK.shape) * 0.5
    given = (torch.tensor(each, dtype=torch.float64) for each in (new, old, kinds[:, None] * MASK, MASK))
    inputs = LossInputs(*given, groups_B=torch.tensor(GROUPS))
    config = ActorConfig(spin_lambda=0.3)
    inputs.prepared = preparation_of("spin")(inputs, config)
    _, grad = _loss("spin", inputs, config)
    _, metrics = find_policy_loss("spin")(inputs, config, Aggregator("token", count(inputs.mask_BT, 5)))
    # The same by autograd, from the definition.
    log_probs = torch.tensor(new, requires_grad=True)
    d = ((log_probs - torch.tensor(old)) * torch.tensor(MASK)).sum(dim=1)
    pairs = [(0, 1), (0, 2), (4, 3)]
    expected = sum(-torch.nn.functional.logsigmoid(0.3 * (d[good] - d[bad])) for good, bad in pairs) / len(pairs)
    expected.backward()
    assert float(metrics["spin_loss"]) == pytest.approx(float(expected), rel=1e-6)
    np.testing.assert_allclose(grad, log_probs.grad.numpy(), rtol=1e-9, atol=1e-15)
    signals = _signals()
    signals.scores = {"demonstration": torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0])}
    ours, _ = find_advantage("spin")(signals, AlgorithmConfig())
    np.testing.assert_array_equal(ours.numpy(), kinds[:, None] * MASK)


# Two turns a row but the third and the fifth; in group 3 the first turns share a state, and two second turns another.
STATES = [
    [0, 0, 0, 0, 0],
    [0, -1, -1, 1, 1],
    [0, 0, -1, -1, -1],
    [2, 2, 2, -1, -1],
    [2, -1, -1, -1, -1],
    [3, 3, -1, 4, 4],
]
TURNS = np.array([[1, 1, 1, 1, 1], [1, 0, 0, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 1, 1]])


@pytest.mark.parametrize("by_std", [True, False])
def test_gigpo(by_std: bool) -> None:
    states = torch.tensor(STATES)
    rewards = torch.zeros(states.shape)
    for row, t, reward in [(0, 4, 1.0), (1, 2, 0.2), (1, 4, 0.5), (2, 1, 0.3), (3, 2, 1.0), (4, 0, 0.0), (5, 4, 1.0)]:
        rewards[row, t] = reward  # (1, 2) is on the last token of an answer, earned by the turn before it
    groups = torch.tensor([3, 3, 3, 8, 8, 5])
    signals = Signals(torch.tensor(TURNS, dtype=torch.float32), rewards, groups, torch.zeros(states.shape))
    signals.states_BT = states
    config = AlgorithmConfig(gamma=0.5, gigpo_step_weight=0.7, norm_adv_by_std=by_std)
    ours, _ = find_advantage("gigpo")(signals, config)

    def compared(values: list[float], which: int) -> float:
        if len(values) < 2:
            return 0.0
        return (values[which] - mean(values)) / ((stdev(values) + 1e-6) if by_std else 1.0)

    episodes = [compared([1.0, 0.7, 0.3], i) for i in range(3)] + [compared([1.0, 0.0], i) for i in range(2)] + [0.0]
    first = [1.0, 0.2 + 0.5 * 0.5, 0.3]  # discounted rewards of the three turns that began in state 0
    expected = np.zeros(TURNS.shape)
    for i in range(3):
        expected[i] = episodes[i] + 0.7 * compared(first, i)
    expected[1, 3:] = episodes[1]  # the only turn of its state
    for i in range(2):
        expected[3 + i] = episodes[3 + i] + 0.7 * compared([1.0, 0.0], i)
    expected[5] = 0.0
    np.testing.assert_allclose(ours.numpy(), expected * TURNS, rtol=1e-5, atol=1e-6)


def test_gigpo_without_turns_is_grpo() -> None:
    signals = _signals()
    signals.states_BT = torch.full(MASK.shape, -1)
    ours, _ = find_advantage("gigpo")(signals, AlgorithmConfig())
    torch.testing.assert_close(ours, find_advantage("grpo")(signals, AlgorithmConfig())[0])


@pytest.mark.parametrize(("gamma", "norm"), [(1.0, "none"), (0.9, "none"), (1.0, "batch_norm")])
def test_prime(gamma: float, norm: str) -> None:
    signals, rng = _signals(), np.random.default_rng(8)
    rewards = rng.normal(size=MASK.shape)
    signals.process_rewards_BT = torch.tensor(np.where(MASK == 1, rewards, np.nan))
    ours, returns = find_advantage("prime")(
        signals, AlgorithmConfig(gamma=gamma, prime=PrimeConfig(coef=0.5, norm=norm))
    )
    if norm == "batch_norm":
        rests = [rewards[row, t:] @ MASK[row, t:] for row in range(len(MASK)) for t in range(MASK.shape[1])]
        rewards = rewards / (max(abs(rest) for rest in rests) + 1e-6)
    means = [float(rewards[row][MASK[row] == 1].mean()) for row in range(len(MASK))]
    raw = np.zeros(MASK.shape)
    for row in range(len(MASK)):
        others = [i for i in _members(row) if i != row]
        if not others:
            continue
        n, later = len(others) + 1, 0.0
        baseline = sum(means[i] for i in _members(row)) / (n - 1)
        for t in reversed(np.flatnonzero(MASK[row])):
            later = rewards[row, t] * n / (n - 1) - baseline + gamma * later
            raw[row, t] = 0.5 * later + SCORES[row] - mean(SCORES[i] for i in others)
    np.testing.assert_allclose(returns.numpy(), raw, rtol=1e-5, atol=1e-6)
    inside = raw[MASK == 1]
    expected = (raw - inside.mean()) / math.sqrt(inside.var(ddof=1) + 1e-8) * MASK
    expected[5] = 0.0  # a single response
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_implicit_rewards_and_their_loss() -> None:
    rng = np.random.default_rng(9)
    new, ref = -rng.random(MASK.shape) * 3, -rng.random(MASK.shape) * 3
    outcomes = np.array([1.0, 0.0, 0.0, 1.0, 0.5, 1.0])
    log_probs = torch.tensor(new, requires_grad=True)
    mask = torch.tensor(MASK, dtype=torch.float64)
    rewards = process_rewards(log_probs, torch.tensor(ref), mask, 0.7)
    np.testing.assert_allclose(rewards.detach().numpy(), 0.7 * (new - ref) * MASK, rtol=1e-12)
    shares = [outcome_loss(rewards[rows], torch.tensor(outcomes)[rows], len(MASK)) for rows in ([0, 1, 4], [2, 3, 5])]
    loss = shares[0][0] + shares[1][0]  # two micro-batches
    loss.backward()
    totals = (0.7 * (new - ref) * MASK).sum(axis=1)
    chances = 1 / (1 + np.exp(-totals))
    expected = -(outcomes * np.log(chances) + (1 - outcomes) * np.log(1 - chances)).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-9)
    slope = ((chances - outcomes) * 0.7 / len(MASK))[:, None] * MASK
    np.testing.assert_allclose(log_probs.grad.numpy(), slope, rtol=1e-9, atol=1e-15)
    right = ((totals > 0) == (outcomes > 0.5)).mean()
    assert float(shares[0][1]["outcome_accuracy"] + shares[1][1]["outcome_accuracy"]) == pytest.approx(right)
