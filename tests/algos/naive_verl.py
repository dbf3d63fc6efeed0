"""verl's formulas once more, row by row and without our functions, for golden files with other numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

ROWS, WIDTH = 9, 7
GROUPS = ["u", "v", "u", "w", "v", "u", "w", "u", "s"]  # the last alone
LOW, HIGH, DUAL = 0.2, 0.28, 3.0


def make_golden(seed: int) -> dict[str, Any]:
    """A file in the format of verl_0.9.1.json, of random inputs."""
    generator = torch.Generator().manual_seed(seed)

    def randn(scale: float) -> Tensor:
        return scale * torch.randn(ROWS, WIDTH, generator=generator)

    lengths = torch.randint(2, WIDTH + 1, (ROWS, 1), generator=generator)
    mask = (torch.arange(WIDTH) < lengths).float()
    mask[torch.arange(0, ROWS, 2), 1] = 0.0  # a tool's token inside the response
    last = torch.tensor([int(row.nonzero().max()) for row in mask])
    rewards = torch.zeros(ROWS, WIDTH)
    rewards[torch.arange(ROWS), last] = torch.randint(0, 4, (ROWS,), generator=generator) * 0.3
    old = -randn(1.0).abs() - 0.01
    inputs = {
        "mask": mask,
        "rewards": rewards,
        "values": randn(0.5),
        "old_log_prob": old,
        "log_prob": (old + randn(0.9)).clamp(max=-1e-3),
        "rollout_log_prob": old + randn(0.1),
        "ref_log_prob": old + randn(0.3),
        "sum_pi_squared": old.exp() ** 2 + 0.5 * torch.rand(ROWS, WIDTH, generator=generator),
        "reward_baselines": torch.rand(ROWS, generator=generator),
        "adv_for_loss": randn(1.0) * mask,
    }
    golden: dict[str, Any] = {"inputs": {name: values.tolist() for name, values in inputs.items()} | {"index": GROUPS}}
    golden["adv"] = {
        name: {part: values.tolist() for part, values in zip(("adv", "ret"), estimate(inputs))}
        for name, estimate in ESTIMATORS.items()
    }
    golden["policy_loss"] = {f"{name}/token-mean": _loss(name, inputs) for name in LOSSES}
    return golden


def _members(i: int) -> list[int]:
    return [j for j in range(ROWS) if GROUPS[j] == GROUPS[i]]


def _outcome(advantage_of: Callable[[int, Tensor], float]) -> Callable[[dict[str, Tensor]], tuple[Tensor, Tensor]]:
    """An estimator that gives each response one number from all scores."""

    def estimate(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        scores = x["rewards"].sum(dim=1)
        advantages = torch.tensor([float(advantage_of(i, scores)) for i in range(ROWS)])[:, None] * x["mask"]
        return advantages, advantages

    return estimate


def _grpo(i: int, s: Tensor) -> Tensor:
    group = s[_members(i)]
    mean, std = (group.mean(), group.std()) if len(group) > 1 else (0.0, 1.0)
    return (s[i] - mean) / (std + 1e-6)


def _rloo(i: int, s: Tensor) -> Tensor:
    others = [float(s[j]) for j in _members(i) if j != i]
    return s[i] - (sum(others) / len(others) if others else 0.0)


def _gpg(i: int, s: Tensor) -> Tensor:
    mean = s[_members(i)].mean() if len(_members(i)) > 1 else 0.0
    return ROWS / max(int(s.count_nonzero()), 1) * (s[i] - mean)


def _whiten(values: Tensor, mask: Tensor) -> Tensor:
    inside = values[mask.bool()].double()
    return ((values.double() - inside.mean()) / (inside.var() + 1e-8).sqrt()).float()


def _gae(gamma: float, lam: float) -> Callable[[dict[str, Tensor]], tuple[Tensor, Tensor]]:
    def estimate(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        advantages = torch.zeros(ROWS, WIDTH)
        for i in range(ROWS):
            value, gain = 0.0, 0.0
            for t in reversed(range(WIDTH)):
                if x["mask"][i, t]:
                    gain = float(x["rewards"][i, t]) + gamma * value - float(x["values"][i, t]) + gamma * lam * gain
                    value = float(x["values"][i, t])
                advantages[i, t] = gain
        return _whiten(advantages, x["mask"]), advantages + x["values"]

    return estimate


def _reinforce(gamma: float) -> Callable[[dict[str, Tensor]], tuple[Tensor, Tensor]]:
    def estimate(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        returns = torch.zeros(ROWS, WIDTH)
        for i in range(ROWS):
            running = 0.0
            for t in reversed(range(WIDTH)):
                if x["mask"][i, t]:
                    running = float(x["rewards"][i, t]) + gamma * running
                    returns[i, t] = running
        return _whiten(returns, x["mask"]) * x["mask"], returns

    return estimate


def _remax(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    returns = (x["rewards"] * x["mask"]).flip(1).cumsum(1).flip(1)
    return returns - x["reward_baselines"][:, None] * x["mask"], returns


def _baseline(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    scores = x["rewards"].sum(dim=1)
    means = torch.tensor([float(scores[_members(i)].mean()) if len(_members(i)) > 1 else 0.0 for i in range(ROWS)])
    advantages = _whiten((scores - means)[:, None] * x["mask"], x["mask"]) * x["mask"]
    return advantages, advantages


def _otb(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    mask = x["mask"]
    G = (x["rewards"] * mask).flip(1).cumsum(1).flip(1)
    W = ((1 - 2 * x["old_log_prob"].exp() + x["sum_pi_squared"]) * mask).cumsum(1)
    lengths = mask.sum(dim=1)
    advantages = torch.zeros(ROWS, WIDTH)
    for i in range(ROWS):
        group = _members(i)
        others = [float(lengths[j]) for j in group if j != i]
        for t in range(WIDTH):
            b = 0.0
            if others:
                weight = sum(float(W[j, t] * mask[j, t]) for j in group)
                b = sum(float(G[j, t] * W[j, t] * mask[j, t]) for j in group) / (weight + 1e-8)
                if float(lengths[i]) > max(others) and t >= max(others):
                    b = 0.0
            advantages[i, t] = (G[i, t] - b) * mask[i, t]
    return advantages, G


ESTIMATORS: dict[str, Callable[[dict[str, Tensor]], tuple[Tensor, Tensor]]] = {
    "grpo": _outcome(_grpo),
    "rloo": _outcome(_rloo),
    "gpg": _outcome(_gpg),
    "rf++_baseline": _baseline,
    "gae_g0.97_l0.9": _gae(0.97, 0.9),
    "rf++_g0.85": _reinforce(0.85),
    "remax": _remax,
    "otb": _otb,
}


def _vanilla(A: float, new: Tensor, old: float) -> Tensor:
    ratio = (new - old).clamp(-20, 20).exp()
    worse = torch.maximum(-A * ratio, -A * ratio.clamp(1 - LOW, 1 + HIGH))
    return torch.minimum(worse, torch.tensor(-A * DUAL)) if A < 0 else worse


def _cispo(A: float, new: Tensor, old: float) -> Tensor:
    return -A * new * min(max(math.exp(float(new.detach()) - old), 1 - LOW), 1 + HIGH)


def _dro(A: float, new: Tensor, old: float) -> Tensor:
    return -(new * A - 0.5 * 0.05 * (new - old) ** 2)


def _dppo_tv(A: float, new: Tensor, old: float) -> Tensor:
    moved = math.exp(float(new.detach())) - math.exp(old)
    keep = moved <= HIGH if A > 0 else moved >= -LOW
    return -A * min(math.exp(float(new.detach()) - old), DUAL) * new * keep


def _dppo_kl(A: float, new: Tensor, old: float) -> Tensor:
    p, q = math.exp(old), math.exp(float(new.detach()))
    bernoulli = p * (old - float(new.detach())) + (1 - p) * math.log((1 - p + 1e-8) / (1 - q + 1e-8))
    keep = (bernoulli <= HIGH or q <= p) if A > 0 else (bernoulli <= LOW or q >= p)
    return -A * min(math.exp(float(new.detach()) - old), DUAL) * new * keep


LOSSES: dict[str, Callable[[float, Tensor, float], Tensor]] = {
    "vanilla": _vanilla,
    "cispo": _cispo,
    "dro": _dro,
    "gpg": lambda A, new, old: -A * new,
    "dppo_tv": _dppo_tv,
    "dppo_kl": _dppo_kl,
}


def _loss(name: str, x: dict[str, Tensor]) -> dict[str, Any]:
    new = x["log_prob"].clone().requires_grad_()
    tokens = [(i, t) for i in range(ROWS) for t in range(WIDTH) if x["mask"][i, t]]
    losses = [
        LOSSES[name](float(x["adv_for_loss"][i, t]), new[i, t], float(x["old_log_prob"][i, t])) for i, t in tokens
    ]
    loss = torch.stack(losses).sum() / len(tokens)
    (grad,) = torch.autograd.grad(loss, new)
    return {"loss": float(loss.detach()), "grad": grad.tolist()}
