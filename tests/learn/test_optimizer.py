from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from whet.config.schema.model import OptimConfig
from whet.learn.eight_bit import EightBitAdamW, first_moment, second_moment
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


def _trained(optimizer: torch.optim.Optimizer, p: nn.Parameter, steps: int, seed: int = 0) -> None:
    """Follow noisy gradients of (w − 1)² / 2, of which those of the last elements are a thousand times smaller."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.where(torch.arange(p.numel()) < p.numel() // 2, 1.0, 1e-3)
    for _ in range(steps):
        noise = 0.3 * torch.randn(p.numel(), generator=generator)
        p.grad = (sizes * (p.detach().float() - 1 + noise)).to(p.dtype)
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_moments_in_8_bits_arrive_where_adamw_does(dtype: torch.dtype) -> None:
    narrow, wide = (nn.Parameter(torch.zeros(600, dtype=each)) for each in (dtype, torch.float32))
    small = EightBitAdamW([narrow], lr=3e-3, weight_decay=0.0)
    _trained(small, narrow, 600)
    _trained(torch.optim.AdamW([wide], lr=3e-3, weight_decay=0.0), wide, 600)
    state = small.state[narrow]
    expected = {"exp_avg": torch.int8, "exp_avg_sq": torch.uint8}
    expected |= {"compensation": torch.int16} if dtype == torch.bfloat16 else {}
    assert {name: each.dtype for name, each in state.items() if each.shape == narrow.shape} == expected
    assert len(state["exp_avg_scale"]) == 3
    assert float((narrow.detach().float() - 1).abs().mean()) < 0.1
    assert float((narrow.detach().float() - wide.detach()).abs().mean()) < 0.05


def test_moments_in_8_bits_keep_their_mean() -> None:
    """Codes lie further apart than a step moves a moment: only rounding at random follows it."""
    p = nn.Parameter(torch.zeros(512))
    optimizer = EightBitAdamW([p], lr=0.0)
    sizes = torch.logspace(-3, 0, 512)
    for _ in range(2000):
        p.grad = sizes.clone()
        optimizer.step()
    square = second_moment(optimizer.state[p]["exp_avg_sq"], optimizer.state[p]["exp_avg_sq_scale"])
    mean = first_moment(optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_scale"])
    expected = sizes.square() * (1 - 0.999**2000)
    large = sizes > 0.02  # smaller ones lie among the least codes of their block
    assert float((square / expected)[large].log().abs().mean()) < 0.1
    assert float((mean / sizes)[large].log().abs().mean()) < 0.1
    assert bool((square > 0).all())  # no step is divided by eps alone


def test_moments_in_8_bits_resume_to_the_bit() -> None:
    whole, first, second = (nn.Parameter(torch.zeros(300, dtype=torch.bfloat16)) for _ in range(3))
    uninterrupted = EightBitAdamW([whole], lr=1e-2)
    begun = EightBitAdamW([first], lr=1e-2)
    for seed in range(3):
        _trained(uninterrupted, whole, 5, seed)
    for seed in range(2):
        _trained(begun, first, 5, seed)
    resumed = EightBitAdamW([second], lr=1e-2)
    with torch.no_grad():
        second.copy_(first)
    resumed.load_state_dict(begun.state_dict())
    _trained(resumed, second, 5, 2)
    assert torch.equal(whole, second)
    for name, kept in uninterrupted.state[whole].items():
        assert torch.equal(kept, resumed.state[second][name]), name
