"""AdamW for bf16 parameters, with the precision of fp32 ones.

A bf16 parameter rounds away updates smaller than 1/256 of itself. Kahan summation (1965) carries what was lost to the
next update. Here the carry is exact: a bf16 number is the upper half of an fp32 one, and the compensation holds the
lower half as 16 bits, so that the sum runs in fp32 (Kalamkar et al., 2019, split the weights of SGD this way). A bf16
compensation would itself round updates away: at a learning rate of 1e-6 it does not change beside a weight of 1.

The first moment is bf16. The second is fp32: with β₂ = 0.999 it changes by a thousandth a step, which bf16 cannot hold.
10 bytes a parameter, weights included, where fp32 weights with AdamW need 12 and a bf16 copy to compute with.
Parameters of other dtypes have no compensation and are updated as AdamW does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from whet import kernels
from whet.model.gathering import local


class Numbers(NamedTuple):
    """The factors of one update; 1 − β is computed in double precision."""

    first: float  # 1 − β₁, the share of the gradient in the first moment
    second: float  # 1 − β₂
    correction: float  # √(1 − β₂ᵗ)
    eps: float
    rate: float  # lr / (1 − β₁ᵗ)
    decay: float  # lr · weight_decay


class KahanAdamW(torch.optim.Optimizer):
    """Decoupled weight decay, bias correction as in AdamW; gradients in the parameter's dtype or in fp32."""

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
        """Update every parameter that has a gradient."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p] or self._first_state(p)
                state["step"] += 1
                t = float(state["step"])
                numbers = Numbers(
                    first=1 - beta1,
                    second=1 - beta2,
                    correction=(1 - beta2**t) ** 0.5,
                    eps=group["eps"],
                    rate=group["lr"] / (1 - beta1**t),
                    decay=group["lr"] * group["weight_decay"],
                )
                # Every rank updates its own shard: the update is element-wise.
                self._update(local(p), local(p.grad), {name: local(kept) for name, kept in state.items()}, numbers)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load saved state without torch's rounding; a state of plain AdamW starts with a compensation of 0."""
        super().load_state_dict(state_dict)
        params = [p for group in self.param_groups for p in group["params"]]
        for index, saved in state_dict["state"].items():
            state = self._first_state(params[index])
            for name, kept in state.items():
                if name in saved:
                    kept.copy_(saved[name])

    def _first_state(self, p: Tensor) -> dict[str, Tensor]:
        """Return the state of a parameter before its first update. The step count is on the host, which reads it."""
        state = {
            "step": torch.zeros((), dtype=torch.float32),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)),
        }
        if p.dtype == torch.bfloat16:
            state["compensation"] = torch.zeros_like(p, dtype=torch.int16)
        self.state[p] = state
        return state

    def _update(self, p: Tensor, gradient: Tensor, state: dict[str, Tensor], by: Numbers) -> None:
        """Update m and v by the gradient, then w ← w − (rate · m / (√v / correction + eps) + decay · w)."""
        m, v, low = state["exp_avg"], state["exp_avg_sq"], state.get("compensation")
        if low is not None and p.is_cuda and kernels.available(p.device) and dense(p, gradient, low, m, v):
            from whet.kernels.kahan import kahan_adamw_  # imports triton, which not every machine has

            kahan_adamw_(p, gradient, low, m, v, *by)
            return
        w = p if low is None else joined(p, low)
        g = gradient.to(v.dtype)
        mean = m.to(v.dtype).lerp_(g, by.first)
        v.lerp_(g.square(), by.second)
        denominator = v.sqrt().div_(by.correction).add_(by.eps)
        w.sub_((mean / denominator).mul_(by.rate).add_(w, alpha=by.decay))
        m.copy_(mean)
        if low is not None:
            split_(w, p, low)


def joined(high: Tensor, low: Tensor) -> Tensor:
    """Return the fp32 numbers of which `high` (bf16) is the rounded upper half and `low` (int16) the remainder."""
    return ((high.view(torch.int16).to(torch.int32) << 16) + low).view(torch.float32)


def split_(whole: Tensor, high: Tensor, low: Tensor) -> None:
    """Split fp32 numbers into their two halves.

    Half way between two bf16 numbers the remainder may be 2¹⁵, which int16 cannot hold: it becomes 2¹⁵ − 1.
    """
    high.copy_(whole)
    rest = whole.view(torch.int32) - (high.view(torch.int16).to(torch.int32) << 16)
    low.copy_(rest.clamp_(max=2**15 - 1))


def dense(*tensors: Tensor) -> bool:
    """Return True if all tensors are contiguous, so that equal offsets are the same element."""
    return all(tensor.is_contiguous() for tensor in tensors)
