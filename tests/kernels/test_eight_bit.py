"""The fused update with 8-bit moments against the same arithmetic in plain torch."""

from __future__ import annotations

import pytest
import torch
from kernels.conftest import DEVICE
from torch import nn

pytest.importorskip("triton")

from whet.kernels.eight_bit import eight_bit_adamw_
from whet.learn.eight_bit import EightBitAdamW
from whet.learn.kahan import Numbers, joined

NUMBERS = Numbers(0.1, 0.001, 0.0316, 1e-8, 3e-4, 1e-5)


@pytest.mark.parametrize("n", [1, 256, 5000])
def test_updates(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    p = nn.Parameter(torch.randn(n, generator=generator).bfloat16())
    optimizer = EightBitAdamW([p], lr=1.0)
    state = optimizer._first_state(p)
    here = {name: value.clone().to(DEVICE) for name, value in state.items()}
    weights = p.detach().clone().to(DEVICE)
    for step in range(1, 4):
        g = torch.randn(n, generator=generator) * torch.logspace(-4, 0, n)
        state["step"] += 1
        with torch.no_grad():
            optimizer._update(p.data, g, state, NUMBERS)
        eight_bit_adamw_(
            *(weights, g.to(DEVICE), here["compensation"], here["exp_avg"], here["exp_avg_sq"]),
            *(here["exp_avg_scale"], here["exp_avg_sq_scale"], step, *NUMBERS),
        )
    ours = joined(weights.cpu(), here["compensation"].cpu())
    torch.testing.assert_close(ours, joined(p.data, state["compensation"]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(here["exp_avg_scale"].cpu(), state["exp_avg_scale"], rtol=1e-2, atol=1e-6)
    for name in ("exp_avg", "exp_avg_sq"):
        gap = (here[name].cpu().int() - state[name].int()).abs()
        assert float((gap > 0).float().mean()) < 0.02, name  # roots round differently here and there
        assert int(gap.max()) <= 2, name
