"""AdamW that keeps its parameters in bf16 and loses nothing by it.

A bf16 parameter swallows updates smaller than 1/256 of itself. Kahan summation (1965) carries what was lost in a
compensation buffer and adds it to the next update. All state is bf16 but the second moment: with β₂ = 0.999 it changes
by a thousandth a step, which bf16 cannot hold, and a step size once too small would stay so. 10 bytes a parameter
where fp32 weights with AdamW need 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class KahanAdamW(torch.optim.Optimizer):
    """Decoupled weight decay, bias correction as in AdamW; the update goes through the compensation buffer."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    for name in ("exp_avg", "compensation"):
                        state[name] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32))
                state["step"] += 1
                t = float(state["step"])
                m, v, compensation = state["exp_avg"], state["exp_avg_sq"], state["compensation"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                m.lerp_(p.grad, 1 - beta1)
                g = p.grad.to(v.dtype)
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                denominator = v.sqrt().div_((1 - beta2**t) ** 0.5).add_(group["eps"])
                compensation.sub_(m / denominator * (group["lr"] / (1 - beta1**t)))
                before = p.clone()
                p.add_(compensation)
                compensation.add_(before.sub_(p))
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Read back saved state; torch would round all of it to the parameters' dtype."""
        super().load_state_dict(state_dict)
        params = [p for group in self.param_groups for p in group["params"]]
        for index, saved in state_dict["state"].items():
            p = params[index]
            self.state[p]["exp_avg_sq"] = saved["exp_avg_sq"].to(p.device, copy=True)
