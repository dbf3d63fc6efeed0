from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from whet.config.schema.model import OptimConfig
from whet.learn.kahan import KahanAdamW, joined, split_
from whet.learn.optimizer import build_optimizer, learning_rate, sum_gradients_in_fp32


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


def test_kahan_state_is_ten_bytes_with_the_weight() -> None:
    p = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = KahanAdamW([p], lr=0.01)
    p.grad = torch.ones_like(p)
    optimizer.step()
    dtypes = {name: value.dtype for name, value in optimizer.state[p].items() if name != "step"}
    assert dtypes == {"exp_avg": torch.bfloat16, "exp_avg_sq": torch.float32, "compensation": torch.int16}


def test_halves_of_fp32_make_it_whole_again() -> None:
    bits = torch.randint(-(2**31), 2**31, (100_000,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    bits[:4] = torch.tensor([0x3F808000, 0x3F818000, -0x407F8000, 0])  # ties, up and down
    whole = bits.view(torch.float32)
    whole = torch.where(whole.abs() < 1e38, whole, 1.5)
    high, low = torch.empty_like(whole, dtype=torch.bfloat16), torch.empty_like(whole, dtype=torch.int16)
    split_(whole, high, low)
    assert torch.equal(high, whole.bfloat16())
    off = (joined(high, low).view(torch.int32) - whole.view(torch.int32)).abs()
    assert int(off.max()) <= 1  # the last bit of a tie
    assert int(off.sum()) < 20


def test_kahan_on_bf16_follows_adamw_in_double_precision() -> None:
    """Small steps beside large weights: what a compensation in bf16 would lose as well."""
    start = torch.linspace(-2, 2, 64).bfloat16()
    kahan, exact = nn.Parameter(start.clone()), nn.Parameter(start.double())
    ours = KahanAdamW([kahan], lr=1e-6, weight_decay=0.1)
    theirs = torch.optim.AdamW([exact], lr=1e-6, weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    if hasattr(kahan, "grad_dtype"):
        kahan.grad_dtype = torch.float32
    for _ in range(300):
        exact.grad = (torch.randn(64, generator=generator) + 0.3).double()
        kahan.grad = exact.grad.clone().to(getattr(kahan, "grad_dtype", kahan.dtype))
        ours.step()
        theirs.step()
    assert torch.all(exact != start)
    whole = joined(kahan.data, ours.state[kahan]["compensation"])
    moved, expected = whole.double() - start, exact.data - start
    torch.testing.assert_close(moved, expected, rtol=0, atol=3e-6)
    assert torch.equal(kahan.data, whole.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bf16_weights_get_kahan_sums(dtype: torch.dtype) -> None:
    params = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, dtype=dtype))]
    assert isinstance(build_optimizer(params, OptimConfig()), KahanAdamW) == (dtype == torch.bfloat16)


@pytest.mark.skipif(not hasattr(Tensor, "grad_dtype"), reason="torch before 2.11 keeps gradients in the weights' dtype")
def test_gradients_of_bf16_weights_add_up_in_fp32() -> None:
    p = nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    sum_gradients_in_fp32([p])
    for _ in range(300):
        (p * 1.0).sum().backward()
    assert p.grad is not None
    assert p.grad.tolist() == [300.0] * 4  # bf16 stops at 256
    assert p.grad.dtype == torch.float32


@pytest.mark.parametrize("pair", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)])
def test_state_is_read_back_under_another_precision(pair: tuple[torch.dtype, torch.dtype]) -> None:
    """A run that was begun on a GPU goes on upon a CPU, and the other way round."""
    saved, resumed = (nn.Parameter(torch.ones(8, dtype=dtype)) for dtype in pair)
    first, second = (build_optimizer([p], OptimConfig(lr=1e-2)) for p in (saved, resumed))
    for p, optimizer in ((saved, first), (resumed, second)):
        p.grad = torch.ones_like(p)
        if p is resumed:
            optimizer.load_state_dict(first.state_dict())
            torch.testing.assert_close(optimizer.state[p]["exp_avg"].float(), torch.full((8,), 0.1), rtol=0.01, atol=0)
            torch.testing.assert_close(optimizer.state[p]["exp_avg_sq"], torch.full((8,), 0.001))
        optimizer.step()
    assert float(second.state[resumed]["step"]) == 2


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
