"""One update of AdamW on bf16 weights whose lower half is kept beside them: one pass over memory, one launch.

The arithmetic is that of `whet/learn/kahan.py`, which says why. 24 bytes of traffic a parameter with fp32 gradients.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048


@triton.jit
def _kernel(
    p_ptr, g_ptr, low_ptr, m_ptr, v_ptr, n, first, second, correction, eps, rate, decay, BLOCK: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    high = tl.load(p_ptr + i, mask=inside, other=0).to(tl.int32)  # the bits of bf16, seen as int16
    low = tl.load(low_ptr + i, mask=inside, other=0).to(tl.int32)
    w = ((high << 16) + low).to(tl.float32, bitcast=True)
    g = tl.load(g_ptr + i, mask=inside, other=0).to(tl.float32)
    m = tl.load(m_ptr + i, mask=inside, other=0).to(tl.float32)
    v = tl.load(v_ptr + i, mask=inside, other=0)
    m += (g - m) * first
    v += (g * g - v) * second
    w -= m / (tl.sqrt_rn(v) / correction + eps) * rate + w * decay
    bits = w.to(tl.int32, bitcast=True)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even
    high = rounded >> 16
    rest = tl.minimum(bits - (high << 16), 0x7FFF)
    tl.store(p_ptr + i, high.to(tl.int16), mask=inside)
    tl.store(low_ptr + i, rest.to(tl.int16), mask=inside)
    tl.store(m_ptr + i, m.to(m_ptr.dtype.element_ty), mask=inside)
    tl.store(v_ptr + i, v, mask=inside)


def kahan_adamw_(
    p: Tensor,
    gradient: Tensor,
    low: Tensor,
    m: Tensor,
    v: Tensor,
    first: float,
    second: float,
    correction: float,
    eps: float,
    rate: float,
    decay: float,
) -> None:
    """Update contiguous bf16 weights `p`, the lower half `low` (int16) and both moments (bf16 and fp32) in place."""
    n = p.numel()
    grid = (triton.cdiv(n, _BLOCK),)
    bits = p.view(torch.int16)
    _kernel[grid](bits, gradient, low, m, v, n, first, second, correction, eps, rate, decay, BLOCK=_BLOCK, num_warps=8)
