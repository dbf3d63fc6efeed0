"""AdamW whose moments are kept in 8 bits: 4 bytes of state for a bf16 weight, the lower half of the weight included.

A block of 256 numbers has one scale, its largest magnitude s. Of the first moment sign(c)·(c/127)²·s is stored, of the
second ((c + 1)/256)⁴·s, which never is 0 beside others that are not: a step is bounded as it is in AdamW. With β₂ =
0.999 a moment changes by less than two codes are apart, so codes are rounded at random, up or down with the
probabilities that keep the mean. The random numbers are a function of the step and of an element's index, so that a
resumed run rounds as the uninterrupted one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet import kernels
from whet.learn.kahan import KahanAdamW, Numbers, dense, joined, split_

BLOCK = 256
_MASK = 0xFFFFFFFF


class EightBitAdamW(KahanAdamW):
    """`KahanAdamW` with quantised moments; for whole parameters, not for shards."""

    def _first_state(self, p: Tensor) -> dict[str, Tensor]:
        blocks = -(-p.numel() // BLOCK)
        state = {
            "step": torch.zeros((), dtype=torch.float32),
            "exp_avg": torch.zeros_like(p, dtype=torch.int8),
            "exp_avg_sq": torch.zeros_like(p, dtype=torch.uint8),
            "exp_avg_scale": torch.zeros(blocks, dtype=torch.float32, device=p.device),
            "exp_avg_sq_scale": torch.zeros(blocks, dtype=torch.float32, device=p.device),
        }
        if p.dtype == torch.bfloat16:
            state["compensation"] = torch.zeros_like(p, dtype=torch.int16)
        self.state[p] = state
        return state

    def _update(self, p: Tensor, gradient: Tensor, state: dict[str, Tensor], by: Numbers) -> None:
        m, v, low = state["exp_avg"], state["exp_avg_sq"], state.get("compensation")
        scales, step = (state["exp_avg_scale"], state["exp_avg_sq_scale"]), int(state["step"])
        if low is not None and p.is_cuda and kernels.available(p.device) and dense(p, gradient, low, m, v):
            from whet.kernels.eight_bit import eight_bit_adamw_  # imports triton, which not every machine has

            eight_bit_adamw_(p, gradient, low, m, v, *scales, step, *by)
            return
        w = p if low is None else joined(p, low)
        g = gradient.to(torch.float32)
        mean = first_moment(m, scales[0]).lerp_(g, by.first)
        square = second_moment(v, scales[1]).lerp_(g.square(), by.second)
        denominator = square.sqrt().div_(by.correction).add_(by.eps)
        w.sub_((mean / denominator).mul_(by.rate).add_(w, alpha=by.decay).to(w.dtype))
        if low is not None:
            split_(w, p, low)
        random = _random_bits(p.numel(), step, p.device).view(p.shape)
        _store_first(mean, m, scales[0], (random & 0xFFFF) / 65536.0)
        _store_second(square, v, scales[1], (random >> 16) / 65536.0)


def first_moment(codes: Tensor, scale: Tensor) -> Tensor:
    """Return the numbers in fp32 that codes (int8) and the scales of their blocks stand for."""
    c = codes.float() / 127.0
    return c * c.abs() * _spread(scale, codes)


def second_moment(codes: Tensor, scale: Tensor) -> Tensor:
    """Return the numbers in fp32 that codes (uint8) and the scales of their blocks stand for."""
    return ((codes.float() + 1.0) / 256.0).pow(4) * _spread(scale, codes)


def _store_first(mean: Tensor, codes: Tensor, scale: Tensor, u: Tensor) -> None:
    scale.copy_(_largest(mean.abs()))
    share = _share(mean.abs(), scale)
    lower = (share.sqrt() * 127.0).floor_().clamp_(max=126.0)
    below, above = (lower / 127.0).square(), ((lower + 1.0) / 127.0).square()
    codes.copy_((lower + (u * (above - below) < share - below)) * mean.sign())


def _store_second(square: Tensor, codes: Tensor, scale: Tensor, u: Tensor) -> None:
    scale.copy_(_largest(square))
    share = _share(square, scale)
    lower = (share.sqrt().sqrt() * 256.0 - 1.0).floor_().clamp_(0.0, 254.0)
    below, above = ((lower + 1.0) / 256.0).pow(4), ((lower + 2.0) / 256.0).pow(4)
    codes.copy_(lower + (u * (above - below) < share - below))


def _largest(values: Tensor) -> Tensor:
    """Return the largest number of each block."""
    flat = values.flatten()
    padded = torch.nn.functional.pad(flat, (0, -len(flat) % BLOCK))
    return padded.view(-1, BLOCK).amax(dim=1)


def _share(values: Tensor, scale: Tensor) -> Tensor:
    """Return values relative to the largest of their blocks; 0 in a block of zeros."""
    spread = _spread(scale, values)
    return torch.where(spread > 0, values / spread, 0.0)


def _spread(scale: Tensor, like: Tensor) -> Tensor:
    """Return the scale of every element's block, in the shape of `like`."""
    return scale.repeat_interleave(BLOCK)[: like.numel()].view(like.shape)


def _random_bits(count: int, step: int, device: torch.device) -> Tensor:
    """Return (count,) integers of 32 random bits: a hash of the step and the index."""
    x = (torch.arange(count, device=device) * 0x9E3779B1 + step * 0x85EBCA77) & _MASK
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = x ^ (x >> shift)
        # The product of two 32-bit numbers, modulo 2³²: its halves, as 64 signed bits cannot hold all of it.
        x = ((x & 0xFFFF) * factor + (((x >> 16) * factor & 0xFFFF) << 16)) & _MASK
    return x ^ (x >> 16)
