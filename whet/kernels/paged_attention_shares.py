"""Shares of a query's keys added up: largest score, mass and sum of each, brought to one scale in order."""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.paged_attention_tiles import Shares

LN2 = tl.constexpr(math.log(2))


@triton.jit
def weights_of(total_peak, peak):
    """Bring two largest scores to one: it, and what sums behind the first and behind the second are multiplied by."""
    new = tl.maximum(total_peak, peak)
    base = tl.where(new > float("-inf"), new, 0.0)
    return new, tl.exp2(total_peak - base), tl.exp2(peak - base)


@triton.jit
def _combine(
    partials, peaks, masses, lengths, out, lse,
    HEADS: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, SHARE: tl.constexpr, AT_ONCE: tl.constexpr,
    LSE: tl.constexpr,
):  # fmt: skip
    """One (query, head): add its shares in order, as `_attend` does where it takes all of them; SHARE is in keys."""
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, D)
    length = tl.load(lengths + i // HEADS).to(tl.int32)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW, 0) // SHARE
    all_peak = tl.full((1,), float("-inf"), tl.float32)
    all_mass = tl.zeros((1,), tl.float32)
    all_acc_D = tl.zeros((D,), tl.float32)
    for share in range(tl.cdiv(length, SHARE) - first):
        at = i * AT_ONCE + share
        all_peak, before, now = weights_of(all_peak, tl.load(peaks + at))
        all_mass = all_mass * before + tl.load(masses + at) * now
        all_acc_D = all_acc_D * before + tl.load(partials + at * D + d) * now
    tl.store(out + i * D + d, (all_acc_D / tl.where(all_mass > 0, all_mass, 1.0)).to(out.dtype.element_ty))
    if LSE:
        tl.store(lse + i + tl.arange(0, 1), (all_peak + tl.log2(tl.where(all_mass > 0, all_mass, 1.0))) * LN2)


def combine(
    into: tuple[Tensor, Tensor, Tensor],
    lengths_B: Tensor,
    out_BHD: Tensor,
    lse_BH: Tensor,
    window: int | None,
    shares: Shares,
) -> None:
    """Add the shares `into` (sums, peaks, masses) which one program each has written; lse_BH may have no rows."""
    B, H, D = out_BHD.shape
    _combine[(B * H,)](
        *(*into, lengths_B, out_BHD, lse_BH),
        HEADS=H,
        D=D,
        WINDOW=window or 0,
        SHARE=shares.keys,
        AT_ONCE=shares.at_once,
        LSE=len(lse_BH) > 0,
        num_warps=1,
        enable_fp_fusion=False,
    )
