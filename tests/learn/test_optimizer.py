from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from whet.config.optim import OptimConfig
from whet.learn.kahan import KahanAdamW
from whet.learn.optimizer import build_optimizer, learning_rate


def test_constant_without_warmup() -> None:
    assert [learning_rate(s, 10, OptimConfig(lr=2.0)) for s in (1, 5, 10)] == [2.0, 2.0, 2.0]


def test_warmup_reaches_lr_at_its_last_step() -> None:
    config = OptimConfig(lr=2.0, lr_warmup_steps=4)
    assert [learning_rate(s, 10, config) for s in (1, 2, 3, 4, 5, 10)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    by_share = OptimConfig(lr=2.0, lr_warmup_ratio=0.25)
    assert [learning_rate(s, 10, by_share) for s in (1, 2, 3)] == [1.0, 2.0, 2.0]  # int(2.5) steps
    assert learning_rate(1, 10, OptimConfig(lr=2.0, lr_warmup_ratio=0.5, lr_warmup_steps=0)) == 2.0


def test_cosine_falls_to_its_floor_at_the_last_step() -> None:
    config = OptimConfig(lr=1.0, lr_warmup_steps=2, lr_scheduler_type="cosine", min_lr_ratio=0.1)
    rates = [learning_rate(s, 12, config) for s in range(1, 15)]
    assert rates[:2] == [0.5, 1.0]
    assert rates[6] == pytest.approx(0.55)  # half way
    assert rates[11] == pytest.approx(0.1)
    assert rates[12:] == pytest.approx([0.1, 0.1])  # past the planned end
    assert rates[4] == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi * 0.3)) / 2)
    assert learning_rate(12, 12, OptimConfig(lr=1.0, lr_scheduler_type="cosine")) == pytest.approx(0.0)


def _reference_step(
    p: Tensor, g: Tensor, state: dict[str, Tensor], t: int, lr: float, betas: tuple[float, float], wd: float
) -> Tensor:
    """One step of AdamW with Kahan summation as it is published, every line rounded to bf16 by its operands."""
    b1, b2 = betas
    p = p * (1 - lr * wd)
    state["m"] = state["m"] + (g - state["m"]) * (1 - b1)
    state["v"] = state["v"] * b2 + (1 - b2) * g * g
    update = state["m"] / (state["v"].sqrt() / math.sqrt(1 - b2**t) + 1e-8)
    state["c"] = state["c"] - lr / (1 - b1**t) * update
    new = p + state["c"]
    state["c"] = state["c"] + (p - new)
    return new


def test_kahan_follows_the_formula() -> None:
    g = torch.Generator().manual_seed(0)
    start = torch.randn(64, dtype=torch.float64, generator=g)
    p = nn.Parameter(start.clone())
    optimizer = KahanAdamW([p], lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)
    expected, state = start, {name: torch.zeros_like(start) for name in "mvc"}
    for t in range(1, 20):
        p.grad = torch.randn(64, dtype=torch.float64, generator=g)
        expected = _reference_step(expected, p.grad, state, t, 0.01, (0.8, 0.95), 0.1)
        optimizer.step()
        torch.testing.assert_close(p.data, expected, atol=1e-12, rtol=1e-12)


def test_kahan_state_is_bf16_but_the_second_moment() -> None:
    p = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = KahanAdamW([p], lr=0.01)
    p.grad = torch.ones_like(p)
    optimizer.step()
    bf16 = {name for name, value in optimizer.state[p].items() if value.dtype == torch.bfloat16}
    assert bf16 == {"exp_avg", "compensation"}
    assert optimizer.state[p]["exp_avg_sq"].dtype == torch.float32


def test_kahan_forgets_large_gradients() -> None:
    """A second moment in bf16 would stay at 0.5 for ever: β₂ = 0.999 moves it by less than it can hold."""
    p = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = KahanAdamW([p], lr=0.0)
    for size in (1.0, 0.01):
        for _ in range(3000):
            p.grad = torch.full_like(p, size)
            optimizer.step()
    assert float(optimizer.state[p]["exp_avg_sq"]) == pytest.approx(0.0473, abs=1e-3)


def test_kahan_keeps_what_bf16_rounds_away() -> None:
    """200 steps of 1e-4 on a weight of 1: bf16 cannot hold 1 − 1e-4, and the sum must still arrive."""
    lr, steps = 1e-4, 200
    kahan, plain = (nn.Parameter(torch.ones(8, dtype=torch.bfloat16)) for _ in range(2))
    exact = nn.Parameter(torch.ones(8))
    optimizers = [
        KahanAdamW([kahan], lr=lr, weight_decay=0.0),
        torch.optim.AdamW([plain], lr=lr, weight_decay=0.0),
        torch.optim.AdamW([exact], lr=lr, weight_decay=0.0),
    ]
    for _ in range(steps):
        for p in (kahan, plain, exact):
            p.grad = torch.ones_like(p)
        for optimizer in optimizers:
            optimizer.step()
    moved = 1 - exact.detach()
    assert torch.all(plain.detach() == 1.0)
    error = (1 - kahan.detach().float() - moved).abs() / moved
    assert float(error.max()) < 0.25  # a bf16 step near 1 is a fifth of the way


@pytest.mark.parametrize(("strategy", "dtype"), [("adamw", torch.float32), ("adamw_bf16", torch.bfloat16)])
def test_saved_and_loaded_goes_on_with_the_same_bits(strategy: str, dtype: torch.dtype, tmp_path: Path) -> None:
    config = OptimConfig(lr=1e-2, strategy=strategy)

    def gradients(step: int) -> Tensor:
        return torch.randn(33, generator=torch.Generator().manual_seed(step)).to(dtype)

    def train(p: nn.Parameter, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            p.grad = gradients(step)
            optimizer.step()

    whole = nn.Parameter(gradients(99))
    uninterrupted = build_optimizer([whole], config)
    train(whole, uninterrupted, range(5))
    torch.save(uninterrupted.state_dict(), tmp_path / "optimizer.pt")
    resumed = nn.Parameter(whole.detach().clone())
    optimizer = build_optimizer([resumed], config)
    optimizer.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    train(whole, uninterrupted, range(5, 9))
    train(resumed, optimizer, range(5, 9))
    assert torch.equal(whole.view(torch.uint8), resumed.view(torch.uint8))
    for name, value in uninterrupted.state[whole].items():
        assert value.dtype == optimizer.state[resumed][name].dtype
        assert torch.equal(value, optimizer.state[resumed][name])
