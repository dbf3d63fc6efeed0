"""One update of AdamW with 8-bit moments on bf16 weights whose lower half is kept beside them: one pass, one launch.

The arithmetic is that of `whet/learn/eight_bit.py`, which says why. 16 bytes of traffic a parameter with fp32
gradients.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK, _ROWS = 256, 8  # numbers that share a scale, and such blocks of a program


@triton.jit
def _hash(index, step):
    x = index.to(tl.uint32) * 0x9E3779B1 + step.to(tl.uint32) * 0x85EBCA77
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def _fourth(x):
    return x * x * (x * x)


@triton.jit(do_not_specialize=["step"])
def _kernel(
    p_ptr, g_ptr, low_ptr, m_ptr, v_ptr, m_scale_ptr, v_scale_ptr, n, blocks, step,
    first, second, correction, eps, rate, decay, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # 1. Rows of one block each: indices (ROWS, BLOCK), scales (ROWS,).
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i = row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside, there = i < n, row < blocks
    high = tl.load(p_ptr + i, mask=inside, other=0).to(tl.int32)  # the bits of bf16, seen as int16
    low = tl.load(low_ptr + i, mask=inside, other=0).to(tl.int32)
    w = ((high << 16) + low).to(tl.float32, bitcast=True)
    g = tl.load(g_ptr + i, mask=inside, other=0).to(tl.float32)
    m_scale = tl.load(m_scale_ptr + row, mask=there, other=0.0)[:, None]
    v_scale = tl.load(v_scale_ptr + row, mask=there, other=0.0)[:, None]
    # 2. The moments that codes stand for, and the update.
    c = tl.load(m_ptr + i, mask=inside, other=0).to(tl.float32) / 127.0
    m = c * tl.abs(c) * m_scale
    v = _fourth((tl.load(v_ptr + i, mask=inside, other=0).to(tl.float32) + 1.0) / 256.0) * v_scale
    m += (g - m) * first
    v += (g * g - v) * second
    w -= m / (tl.sqrt_rn(v) / correction + eps) * rate + w * decay
    bits = w.to(tl.int32, bitcast=True)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even
    high = rounded >> 16
    rest = tl.minimum(bits - (high << 16), 0x7FFF)
    tl.store(p_ptr + i, high.to(tl.int16), mask=inside)
    tl.store(low_ptr + i, rest.to(tl.int16), mask=inside)
    # 3. New scales, and codes rounded at random. Elements past the end must not count.
    m, v = tl.where(inside, m, 0.0), tl.where(inside, v, 0.0)
    m_scale, v_scale = tl.max(tl.abs(m), axis=1), tl.max(v, axis=1)
    tl.store(m_scale_ptr + row, m_scale, mask=there)
    tl.store(v_scale_ptr + row, v_scale, mask=there)
    bits = _hash(i, step)
    u = (bits & 0xFFFF).to(tl.float32) / 65536.0
    share = tl.where(m_scale[:, None] > 0.0, tl.abs(m) / m_scale[:, None], 0.0)
    lower = tl.minimum(tl.floor(tl.sqrt_rn(share) * 127.0), 126.0)
    below, above = lower / 127.0, (lower + 1.0) / 127.0
    code = lower + (u * (above * above - below * below) < share - below * below).to(tl.float32)
    tl.store(m_ptr + i, tl.where(m < 0.0, -code, code).to(tl.int8), mask=inside)
    u = (bits >> 16).to(tl.float32) / 65536.0
    share = tl.where(v_scale[:, None] > 0.0, v / v_scale[:, None], 0.0)
    lower = tl.floor(tl.sqrt_rn(tl.sqrt_rn(share)) * 256.0 - 1.0)
    lower = tl.minimum(tl.maximum(lower, 0.0), 254.0)
    below, above = _fourth((lower + 1.0) / 256.0), _fourth((lower + 2.0) / 256.0)
    code = lower + (u * (above - below) < share - below).to(tl.float32)
    tl.store(v_ptr + i, code.to(tl.uint8), mask=inside)


def eight_bit_adamw_(
    p: Tensor,
    gradient: Tensor,
    low: Tensor,
    m: Tensor,
    v: Tensor,
    m_scale: Tensor,
    v_scale: Tensor,
    step: int,
    first: float,
    second: float,
    correction: float,
    eps: float,
    rate: float,
    decay: float,
) -> None:
    """Update contiguous bf16 weights `p`, the lower half `low` (int16), codes and scales of both moments in place."""
    n, blocks = p.numel(), len(m_scale)
    _kernel[(triton.cdiv(blocks, _ROWS),)](
        *(p.view(torch.int16), gradient, low, m, v, m_scale, v_scale, n, blocks, step),
        *(first, second, correction, eps, rate, decay),
        ROWS=_ROWS,
        BLOCK=_BLOCK,
        num_warps=8,
    )
