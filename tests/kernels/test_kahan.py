"""The fused update against the same arithmetic in plain torch."""

from __future__ import annotations

import pytest
import torch
from kernels.conftest import DEVICE

from whet.kernels.kahan import kahan_adamw_
from whet.learn.kahan import joined

NUMBERS = (0.1, 0.001, 0.0316, 1e-8, 3e-4, 1e-5)  # 1 − β₁, 1 − β₂, correction, eps, rate, decay


@pytest.mark.parametrize("gradients", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 2048, 5000])
def test_one_update(n: int, gradients: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(n)
    p = torch.randn(n, generator=generator).bfloat16()
    low = torch.randint(-(2**15), 2**15, (n,), generator=generator, dtype=torch.int16)
    g = torch.randn(n, generator=generator).to(gradients)
    m = torch.randn(n, generator=generator).mul(0.1).bfloat16()
    v = torch.rand(n, generator=generator)
    first, second, correction, eps, rate, decay = NUMBERS
    mean = m.double() + (g.double() - m.double()) * first
    square = v.double() + (g.double() ** 2 - v.double()) * second
    w = joined(p, low).double()
    expected = w - (mean / (square.sqrt() / correction + eps) * rate + w * decay)

    here = [x.to(DEVICE) for x in (p, g, low, m, v)]
    again = [x.clone() for x in here]
    for tensors in (here, again):
        kahan_adamw_(*tensors, *NUMBERS)
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(here, again))
    new, _, rest, m, v = (x.cpu() for x in here)
    whole = joined(new, rest)
    torch.testing.assert_close(whole.double(), expected, rtol=3e-7, atol=1e-9)
    assert torch.equal(new, whole.bfloat16())
    torch.testing.assert_close(m.double(), mean, rtol=2**-7, atol=1e-8)  # the interpreter cuts off what bf16 rounds
    torch.testing.assert_close(v.double(), square, rtol=1e-6, atol=0)
